package trainer

// What the next step depends on: master weights, moments, selection biases, the position in the
// data and the progress. Checkpoints and vaults hold it.

import (
	"slices"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// trainState is this rank's part of the state.
type trainState struct {
	model    *moe.Model
	optim    *optim.Optimizer
	balancer *balancer
	data     *dataLoader
	progress progress
}

// snapshot returns the progress with the positions of optimizer and loader.
func (s *trainState) snapshot() progress {
	p := s.progress
	p.OptimizerSteps, p.Loader = s.optim.Steps(), s.data.loader.State()
	p.Recent = slices.Clone(p.Recent)
	return p
}

// pieces lists everything that this rank saves. The first rank saves the selection biases, which
// every rank holds.
func (s *trainState) pieces(lead bool) (mine []checkpoint.Piece) {
	for p := range s.optim.Pieces {
		mine = append(mine, pieces(p)...)
	}
	if lead {
		mine = append(mine, s.biases()...)
	}
	return mine
}

// biases lists the selection biases, which every rank holds.
func (s *trainState) biases() []checkpoint.Piece {
	var all []checkpoint.Piece
	for _, route := range s.balancer.routings {
		all = append(all, checkpoint.Piece{Name: weights.BiasPrefix + route.Name, Shape: route.Bias.Dims(), Data: route.Bias.F32()})
	}
	return all
}
