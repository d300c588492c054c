package trainer

// What the next step depends on: master weights, moments, selection biases, the position in the
// data and the progress. Checkpoints and vaults hold it.

import (
	"slices"

	"spmoe/internal/seal"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/pipe"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// trainState is this rank's part of the state.
type trainState struct {
	model    *moe.Model // in a pipeline, the first of this rank's stages
	pipe     *pipe.Rank // nil: the model is not cut into stages
	first    bool       // of the ranks with the same part of the model
	optim    *optim.Optimizer
	balancer *balancer
	data     *dataLoader
	progress progress
}

// snapshot returns the progress with the positions of optimizer and loader.
func (s *trainState) snapshot() progress {
	p := s.progress
	p.OptimizerSteps, p.Loader = s.optim.Steps(), s.data.loader.State()
	p.Loader.Pos = s.data.position(p.Tokens)
	p.Recent, p.Tier = slices.Clone(p.Recent), cpu.Best()
	return p
}

// models returns the stages of this rank, or the whole model.
func (s *trainState) models() []*moe.Model {
	if s.pipe != nil {
		return s.pipe.Models
	}
	return []*moe.Model{s.model}
}

// groups returns the parameters of this rank.
func (s *trainState) groups() []*moe.Group {
	if s.pipe != nil {
		return s.pipe.Groups()
	}
	return s.model.Groups
}

// routers returns the routers of this rank.
func (s *trainState) routers() []moe.Routing {
	if s.pipe != nil {
		return s.pipe.Routings()
	}
	return s.model.Routings()
}

// eval returns this rank's part of the loss of a batch. It is collective.
func (s *trainState) eval(ex *tensor.Exec, b moe.Batch) (moe.Loss, error) {
	if s.pipe != nil {
		return s.pipe.Eval(ex, b)
	}
	return s.model.Eval(ex, b)
}

// observe calls f with the activations of later passes: see [moe.Model.Observe].
func (s *trainState) observe(f func(name string, t tensor.Tensor)) {
	for _, m := range s.models() {
		m.Observe(f)
	}
}

// pieces lists everything that this rank saves, with its seals if the state has any. Of the ranks
// with the same routers, the first saves the selection biases. Their seals are made here.
func (s *trainState) pieces() (mine []checkpoint.Piece) {
	var vectors []*checkpoint.Vector
	if sealed := s.optim.SavedSeals(); sealed != nil {
		for name := range s.optim.State {
			vectors = append(vectors, &checkpoint.Vector{Name: name, Seals: sealed[len(vectors)]})
		}
	}
	for p := range s.optim.Pieces {
		mine = append(mine, pieces(p, vectors)...)
	}
	if !s.first {
		return mine
	}
	biases := s.biases()
	if s.optim.Sealed() {
		var memory []byte
		v := &checkpoint.Vector{Name: "selection biases"}
		for i := range biases {
			biases[i].Vector, memory = v, append(memory, biases[i].Bytes()...)
		}
		v.Seals = seal.Make(memory, 4)
	}
	return append(mine, biases...)
}

// biases lists the selection biases of this rank's routers.
func (s *trainState) biases() []checkpoint.Piece {
	var all []checkpoint.Piece
	for _, route := range s.balancer.routings {
		all = append(all, checkpoint.Piece{Name: weights.BiasPrefix + route.Name, Shape: route.Bias.Dims(), Data: route.Bias.F32()})
	}
	return all
}
