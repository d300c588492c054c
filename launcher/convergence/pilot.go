package convergence

// A pilot: a few seeds of their own that tell how much pairs scatter. They do not count for the
// verdict.

import (
	"path/filepath"

	"spmoe/launcher/convergence/design"
)

// pilotFolder is the folder of the pilot in that of the comparison.
const pilotFolder = "pilot"

// Pilot returns a comparison of all precisions with a number of seeds that c does not use. c needs
// no design yet.
func (c *Comparison) Pilot(seeds int) (*Comparison, error) {
	if _, err := c.existingPlan(); err != nil {
		return nil, err
	}
	pilot := *c
	pilot.Out = filepath.Join(c.Out, pilotFolder)
	pilot.Design = design.Fixed(pilotMargin, seeds)
	pilot.Config.Seed += MaxSeeds
	return &pilot, nil
}

// pilotMargin is of no effect: a pilot has no verdict.
const pilotMargin = 0.5
