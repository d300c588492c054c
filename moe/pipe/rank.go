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
	Meshes []moe.Mesh       // Mesh or, if pairs of actions overlap, one for each stage
	Line   *collective.Comm // the ranks that a micro-batch passes, in the order of their places
	Models []*moe.Model     // its stages, in the order of the model
}

// Build divides the ranks of c according to a layout and builds the stages of this one: build
// returns one of them, on the mesh of its ranks. A message has at most the given number of bytes:
// tokens of a micro-batch per rank · dim · bytes of the working type. Build is collective.
func (p *Plan) Build(c *collective.Comm, l mesh.Layout, bytes int, build func(moe.Mesh, moe.Stage) (*moe.Model, error)) (*Rank, error) {
	s := p.Schedule
	place := l.Coordinate(c.Rank(), mesh.PP)
	line, err := c.Split(c.Rank()%l.StageRanks(), c.Rank())
	if err != nil {
		return nil, err
	}
	r := &Rank{Line: line}
	var turns *collective.Turns
	if p.Overlaps(l.StageRanks()) {
		turns = &collective.Turns{}
		turns.Add(line)
	}
	if r.Meshes, err = p.meshes(c, l, turns); err != nil {
		return nil, err
	}
	stages := make([]*moe.Model, s.Stages)
	for i, stage := range p.stages {
		if p.holders[i] != place {
			continue
		}
		on := &r.Meshes[len(r.Models)%len(r.Meshes)]
		if stages[i], err = build(*on, stage); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		r.Models = append(r.Models, stages[i])
		stages[i].ShareArenas(r.Models[0])
		*on = stages[i].Mesh()
	}
	r.Mesh = r.Meshes[0]
	boxes, err := line.OpenMailboxes(p.Boxes(), bytes)
	if err != nil {
		return nil, err
	}
	r.Executor = &Executor{
		plan: p, rank: place, stages: stages, boxes: boxes, turns: turns,
		passes: map[pass]*moe.Pass{}, outputs: map[pass]moe.Boundary{},
	}
	return r, nil
}

// meshes returns the mesh of this rank's stages or, if they take turns, a mesh for each. It is
// collective.
func (p *Plan) meshes(c *collective.Comm, l mesh.Layout, turns *collective.Turns) (all []moe.Mesh, err error) {
	n := 1
	if turns != nil {
		n = p.Schedule.Stages / len(p.Schedule.Ranks)
	}
	for range n {
		peers, err := c.Split(l.Coordinate(c.Rank(), mesh.PP), c.Rank())
		if err != nil {
			return nil, err
		}
		if turns != nil {
			turns.Add(peers)
		}
		m, err := moe.NewMesh(peers, l.Stage())
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
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
func (r *Rank) ActivationPeak(ex *tensor.Exec) int {
	n := moe.ActivationPeak(ex, r.Models...)
	if r.twin != nil {
		n += r.twin.Peak()
	}
	return n
}
