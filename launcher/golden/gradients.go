package golden

import (
	"cmp"
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/moe"
)

// Gradients: each rank compares those that it owns. A gradient of the file that no rank has is
// unknown.

const gradientPrefix = "gradient "

// compareGradients compares the gradients of this rank's experts, and on rank 0 also those of all
// replicated parameters.
func (c *check) compareGradients(r *rank) error {
	for _, g := range r.model.Groups {
		if g.Ranks != nil && !g.Shared {
			if err := collective.AllReduce(r.comm, g.Grad.F32(), collective.Sum); err != nil {
				return err
			}
		}
		if c.folder.gradients == nil || g.Ranks != nil && r.comm.Rank() != 0 {
			continue
		}
		for _, p := range g.Params {
			if err := c.compareGradient(p); err != nil {
				return fmt.Errorf("gradients.safetensors: %w", err)
			}
		}
	}
	return nil
}

func (c *check) compareGradient(p *moe.Param) error {
	name := gradientPrefix + p.Name
	line := Line{Name: name, Note: "not compared: the reference lacks it"}
	if _, ok := c.folder.gradients.Info(p.Name); ok {
		want, err := parameter(c.folder.gradients, p.Name, p.Dims)
		if err != nil {
			return err
		}
		line = relativeL2(name, p.Grad.F32(), want)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gradients = append(c.gradients, line)
	return nil
}

// allGradients returns the lines of all ranks, sorted by name, with one more for every gradient
// that no rank has.
func (c *check) allGradients() []Line {
	lines := c.gradients
	if file := c.folder.gradients; file != nil {
		for _, info := range file.Tensors() {
			name := gradientPrefix + info.Name
			if !slices.ContainsFunc(c.gradients, func(l Line) bool { return l.Name == name }) {
				line := Line{Name: name, Unknown: true, Note: "the model has no such parameter: the names are those of the tensors in model.safetensors"}
				if _, ok := c.folder.weights.Tensor(info.Name); ok { // a selection bias
					line = Line{Name: name, Note: "not compared: the model has no gradient for it"}
				}
				lines = append(lines, line)
			}
		}
	}
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Compare(a.Name, b.Name) })
	return lines
}
