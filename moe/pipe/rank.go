package pipe

import (
	"fmt"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/tensor"
)

// Rank is what a rank has of a model in a pipeline.
type Rank struct {
	*Executor
	Mesh   moe.Mesh         // of the ranks with the same stages
	Line   *collective.Comm // the ranks that a micro-batch passes, in the order of their places
	Models []*moe.Model     // its stages, in the order of the model
}

// Build divides the ranks of c according to a layout and builds the stages of this one: build
// returns one of them, on the mesh of its ranks. A message has at most the given number of bytes:
// tokens of a micro-batch per rank · dim · bytes of the working type. The ranks of a pipeline must
// be on one host. Build is collective.
func (p *Plan) Build(c *collective.Comm, l mesh.Layout, bytes int, build func(moe.Mesh, moe.Stage) (*moe.Model, error)) (*Rank, error) {
	s := p.Schedule
	if l.PP != len(s.Ranks) {
		return nil, fmt.Errorf("pp %d for schedule %s", l.PP, s.Title())
	}
	place := l.Coordinate(c.Rank(), mesh.PP)
	peers, err := c.Split(place, c.Rank())
	if err != nil {
		return nil, err
	}
	line, err := c.Split(c.Rank()%l.Batch(), c.Rank())
	if err != nil {
		return nil, err
	}
	r := &Rank{Line: line}
	if r.Mesh, err = moe.NewMesh(peers, l.Stage()); err != nil {
		return nil, err
	}
	stages := make([]*moe.Model, s.Stages)
	for i, stage := range p.stages {
		if p.holders[i] != place {
			continue
		}
		if stages[i], err = build(r.Mesh, stage); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		r.Models = append(r.Models, stages[i])
		stages[i].ShareArenas(r.Models[0])
		r.Mesh = stages[i].Mesh()
	}
	boxes, err := line.OpenMailboxes(p.Boxes(), bytes)
	if err != nil {
		return nil, err
	}
	r.Executor, err = p.New(place, stages, boxes)
	return r, err
}

// Groups returns the parameters of all stages of the rank. An optimizer takes them with the
// communicator of all ranks, over which the gradient norm is summed.
func (r *Rank) Groups() (all []*moe.Group) {
	for _, m := range r.Models {
		all = append(all, m.Groups...)
	}
	return all
}

// Routings returns the routers of all stages of the rank. Their loads are to be summed over the
// ranks of Mesh.
func (r *Rank) Routings() (all []moe.Routing) {
	for _, m := range r.Models {
		all = append(all, m.Routings()...)
	}
	return all
}

// ActivationPeak returns the maximum bytes that the passes of all stages with this Exec have held.
func (r *Rank) ActivationPeak(ex *tensor.Exec) int { return moe.ActivationPeak(ex, r.Models...) }
