package convergence

// The second outcome of a comparison with --ema: the validation loss of the averaged weights.

import (
	"fmt"
	"strings"
)

// Averaged is how an arm's averaged weights compare with the baseline's. It has no effect on the
// verdict of the arm.
type Averaged struct {
	Difference *Difference `json:"difference"` // in validation loss; nil if a loss is not finite
	Verdict    string      `json:"verdict"`    // on this loss alone
}

// outcome is the entry of a second outcome in a plan.
type outcome struct {
	Loss string `toml:"loss"`
	Rule string `toml:"rule"`
}

// averagedRule says how the second outcome is tested along with the losses.
const averagedRule = "the losses decide: verdict, number of seeds and exit code are theirs; this outcome has a verdict of its own, after the same seeds and at the same levels, which are not corrected for it"

// plannedAverage returns what a plan says of the averaged weights, if they are an outcome.
func (c *Comparison) plannedAverage() (o outcome) {
	if c.Config.EMA == 0 {
		return o
	}
	return outcome{fmt.Sprintf("validation with averaged weights (decay %g per step), after the last step", c.Config.EMA), averagedRule}
}

func averagedLoss(r Run) float64 { return float64(r.Averaged) }

// judgeAverage returns the second outcome of an arm, or nil if the comparison has none.
func (c *Comparison) judgeAverage(a, baseline Arm) *Averaged {
	if c.Config.EMA == 0 {
		return nil
	}
	pairs := baseline.Runs[:len(a.Runs)]
	d := difference(losses(a.Runs, averagedLoss), losses(pairs, averagedLoss), c.Design)
	return &Averaged{d, a.verdict(pairs, c.Design, d)}
}

// averagedOutcome returns the arm's second outcome, which is empty for the baseline.
func (a Arm) averagedOutcome() Averaged {
	if a.Averaged == nil {
		return Averaged{}
	}
	return *a.Averaged
}

// secondary states the second outcome of an arm.
func (a Arm) secondary() []string {
	if a.Averaged == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("second outcome, loss of averaged weights: %s", strings.ToUpper(a.Averaged.Verdict))}
	if d := a.Averaged.Difference; d != nil && d.Seeds > 1 {
		lines = append(lines, fmt.Sprintf("  %+.3f %%, 95 %% interval %+.3f to %+.3f; the smallest margin is %.2f %%",
			100*d.Mean, 100*d.CI95[0], 100*d.CI95[1], 100*d.Smallest))
	}
	return lines
}
