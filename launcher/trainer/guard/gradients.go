// Package guard keeps damage and faults out of the weights. A guard finds what is wrong, restores
// it if it can, or says that the step must be computed again.
package guard

// The guard of the gradients: it keeps unusable gradients from the weights. A step whose gradient
// norm is not finite, or is clipped and far above earlier norms, is computed again from the same
// rows. If the second attempt is fine, the first was wrong and the second is used; otherwise the
// step is skipped. A run that skips too many steps ends.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe/optim"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Fault describes what is wrong with a gradient norm that follows those in n. It is empty if
// nothing is. A norm of up to clipNorm is no spike: clipping accepts it as it is. The norms of a
// run that has converged are near 0, where some are many times others.
func Fault(g config.Guard, norm, clipNorm float64, n state.Norms) string {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return fmt.Sprintf("%g, which is not finite", norm)
	}
	least := cmp.Or(clipNorm, config.UnclippedSpike)
	if m, ok := n.Median(); ok && g.Spike > 0 && norm > least && norm > g.Spike*m {
		return fmt.Sprintf("%g, more than %g times the median of the last %d, %g", norm, g.Spike, len(n), m)
	}
	return ""
}

// Attempt is the result of computing the gradients of a step: the same on all ranks.
type Attempt struct {
	Norm   float64 // of the summed gradients
	Totals state.Totals
	sum    uint64 // checksum of the gradients; 0 if the step is not replayed
}

// same compares bit by bit.
func (a Attempt) same(b Attempt) bool {
	return a.sum == b.sum && math.Float64bits(a.Norm) == math.Float64bits(b.Norm) && math.Float64bits(a.Totals.Loss) == math.Float64bits(b.Totals.Loss)
}

// String implements [fmt.Stringer].
func (a Attempt) String() string {
	loss := a.Totals.MeanLoss()
	return fmt.Sprintf("loss %v, gradient norm %v", loss, a.Norm)
}

// Verdict says what to do with the gradients of an attempt.
type Verdict int

const (
	ComputeAgain Verdict = iota // the same rows, once more
	UseGradients                // in the update
	skipStep
)

// Gradients judges the attempts of a step.
type Gradients struct {
	config.Guard
	Comm     *collective.Comm
	Ex       *tensor.Exec
	Optim    *optim.Optimizer
	Progress *state.Progress
	Alarms   *state.Alarms
	attempts []Attempt // of the current step
}

// Judge decides what follows the newest attempt of the current step. All ranks decide alike, from
// numbers that all of them have. It is collective.
func (g *Gradients) Judge(a Attempt) (v Verdict, err error) {
	replayed := config.Due(g.Replay, g.Progress.Step+1)
	if replayed {
		if a.sum, err = g.checksum(); err != nil {
			return v, err
		}
	}
	g.attempts = append(g.attempts, a)
	switch len(g.attempts) {
	case 1:
		v = g.judgeFirst(a, replayed)
	case 2:
		v = g.judgeSecond(g.attempts[0], a, replayed)
	default:
		v = g.judgeThird(g.attempts[0], g.attempts[1], a)
	}
	if v != ComputeAgain {
		g.attempts = g.attempts[:0]
	}
	return v, nil
}

// judgeFirst accepts an attempt without faults, unless the step is replayed.
func (g *Gradients) judgeFirst(first Attempt, replayed bool) Verdict {
	if replayed || g.wrong(first) != "" {
		return ComputeAgain
	}
	return UseGradients
}

// judgeSecond accepts the second attempt or skips the step. If the step is replayed and the
// attempts differ, it asks for a third.
func (g *Gradients) judgeSecond(first, second Attempt, replayed bool) Verdict {
	if replayed && !second.same(first) {
		return ComputeAgain
	}
	step, wrong := g.Progress.Step+1, g.wrong(first)
	switch again := g.wrong(second); {
	case again != "":
		g.Alarms.Raise("step %d is skipped and changes no weight: its gradient norm is %s, and %s when computed again", step, wrong, again)
		return skipStep
	case wrong != "":
		g.Alarms.Raise("step %d had a transient fault: its gradient norm was %s; computed again it is %v, which is used", step, wrong, second.Norm)
	}
	return UseGradients
}

// Disagree reports whether two attempts have differed, so that a third one decides.
func (g *Gradients) Disagree() bool { return len(g.attempts) == 2 }

// judgeThird accepts what two of three attempts agree on. The first two differ.
func (g *Gradients) judgeThird(first, second, third Attempt) Verdict {
	step, wrong := g.Progress.Step+1, g.wrong(third)
	switch majority := third.same(first) || third.same(second); {
	case !majority:
		g.Alarms.Raise("step %d is skipped and changes no weight: it gave three different results: %v; %v; %v: this machine does not compute reliably", step, first, second, third)
		return skipStep
	case wrong != "":
		g.Alarms.Raise("step %d is skipped and changes no weight: its gradient norm is %s in two of three attempts: %v; %v; %v", step, wrong, first, second, third)
		return skipStep
	}
	g.Alarms.Raise("step %d had a transient fault: two attempts gave %v and %v, a third %v, which is used", step, first, second, third)
	return UseGradients
}

// wrong describes what is wrong with an attempt; empty if nothing is.
func (g *Gradients) wrong(a Attempt) string {
	return Fault(g.Guard, a.Norm, g.Optim.ClipNorm, g.Progress.Norms)
}

// checksum returns a checksum of the summed gradients of all ranks. Neither loss nor norm shows
// that a gradient has the wrong sign. It is collective.
func (g *Gradients) checksum() (sum uint64, err error) {
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	mine := []uint64{0}
	for t := range g.Optim.Gradients {
		mine[0] = state.AddSum(mine[0], g.Ex, t)
	}
	all := make([]uint64, g.Comm.Size())
	if err := collective.AllGather(g.Comm, all, mine); err != nil {
		return 0, fmt.Errorf("comparing checksums of gradients: %w", err)
	}
	for _, s := range all {
		sum = sum*state.SumPrime ^ s
	}
	return sum, nil
}

// SkipError ends a run that has skipped too many steps. Restarting it unchanged would not help.
type SkipError struct {
	Steps []int // within the last 100
	Most  int
}

// Error implements error.
func (e *SkipError) Error() string {
	return fmt.Sprintf("steps %s were skipped, more than %d of %d (guard.skips): the weights of the last good step are saved; lower optimizer.lr, or leave the data of these steps out",
		strings.Trim(fmt.Sprint(e.Steps), "[]"), e.Most, state.SkipSteps)
}

// TooManySkips returns a [*SkipError] if the last step is one skip too many.
func (g *Gradients) TooManySkips(s events.Step) error {
	if !s.Skipped {
		return nil
	}
	from, _ := slices.BinarySearch(g.Progress.SkippedSteps, s.Step-state.SkipSteps+1)
	recent := g.Progress.SkippedSteps[from:]
	if len(recent) <= g.Skips {
		return nil
	}
	return &SkipError{slices.Clone(recent), g.Skips}
}
