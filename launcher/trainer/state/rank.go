package state

// What the next step depends on: master weights, moments, selection biases, the position in the
// data and the progress. Checkpoints and vaults hold it.

import (
	"slices"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/pipe"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// Pieces lists a piece's tensors with their checkpoint names.
func Pieces(p optim.Piece) (all []checkpoint.Piece) {
	for _, v := range p.State {
		c := checkpoint.Piece{
			Name:   v.Name + "/" + p.Param.Name,
			Shape:  p.Param.Dims,
			Offset: int64(p.Offset),
		}
		if v.Data.DType() == tensor.BF16 {
			c.BF16 = v.Data.Bytes()
		} else {
			c.Data = v.Data.F32()
		}
		all = append(all, c)
	}
	return all
}

// TrainState is this rank's part of the state.
type TrainState struct {
	Model    *moe.Model // in a pipeline, the first of this rank's stages
	Pipe     *pipe.Rank // nil: the model is not cut into stages
	First    bool       // of the ranks with the same part of the model
	Optim    *optim.Optimizer
	Balancer *Balancer
	Data     *DataLoader
	Progress Progress
}

// Snapshot returns the progress with the positions of optimizer and loader.
func (s *TrainState) Snapshot() Progress {
	p := s.Progress
	p.OptimizerSteps, p.Loader = s.Optim.Steps(), s.Data.Loader.State()
	p.Loader.Pos = s.Data.position(p.Tokens)
	p.Recent, p.Tier = slices.Clone(p.Recent), cpu.Best()
	return p
}

// Models returns the stages of this rank, or the whole model.
func (s *TrainState) Models() []*moe.Model {
	if s.Pipe != nil {
		return s.Pipe.Models
	}
	return []*moe.Model{s.Model}
}

// Groups returns the parameters of this rank.
func (s *TrainState) Groups() []*moe.Group {
	if s.Pipe != nil {
		return s.Pipe.Groups()
	}
	return s.Model.Groups
}

// Routers returns the routers of this rank.
func (s *TrainState) Routers() []moe.Routing {
	if s.Pipe != nil {
		return s.Pipe.Routings()
	}
	return s.Model.Routings()
}

// Eval returns this rank's part of the loss of a batch. It is collective.
func (s *TrainState) Eval(ex *tensor.Exec, b moe.Batch) (moe.Loss, error) {
	if s.Pipe != nil {
		return s.Pipe.Eval(ex, b)
	}
	return s.Model.Eval(ex, b)
}

// Pieces lists everything that this rank saves. Of the ranks with the same routers, the first saves
// the selection biases.
func (s *TrainState) Pieces() (mine []checkpoint.Piece) {
	for p := range s.Optim.Pieces {
		mine = append(mine, Pieces(p)...)
	}
	if s.First {
		mine = append(mine, s.Biases()...)
	}
	return mine
}

// Biases lists the selection biases of this rank's routers.
func (s *TrainState) Biases() []checkpoint.Piece {
	var all []checkpoint.Piece
	for _, route := range s.Balancer.Routings {
		all = append(all, checkpoint.Piece{
			Name:  weights.BiasPrefix + route.Name,
			Shape: route.Bias.Dims(),
			Data:  route.Bias.F32(),
		})
	}
	return all
}
