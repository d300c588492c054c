package trainer

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
	"spmoe/launcher/record"
	"spmoe/moe/optim"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Guard is the configuration of the guards.
type Guard struct {
	Spike       float64 `toml:"spike" help:"recompute a step whose gradient norm exceeds optimizer.clip_norm and this multiple of the median of the last 64, and skip it if the norm stays; 0: accept any finite norm"`
	Skips       int     `toml:"skips" help:"maximum number of skipped steps within 100; one more ends the run with exit code 93"`
	Memory      int     `toml:"memory" help:"steps between checks that weights have not changed by themselves (1: every step); the optimizer's state is checked at every step; 0: check neither"`
	Activations int     `toml:"activations" help:"steps between those that check that activations and gradients do not change in memory while they wait; 1: every step, 0: never"`
	Replay      int     `toml:"replay" help:"compute the gradients of every Nth step twice and compare; 0: never"`
}

func (g Guard) validate() error {
	switch {
	case !(g.Spike == 0 || g.Spike > 1) || math.IsInf(g.Spike, 0):
		return fmt.Errorf("guard.spike is %g: give 0 (off) or a multiple of the median gradient norm above 1, such as 100", g.Spike)
	case g.Skips < 0:
		return fmt.Errorf("guard.skips is %d: give 0 (the first skipped step ends the run) or more", g.Skips)
	case g.Memory < 0:
		return fmt.Errorf("guard.memory is %d: give 0 (never), 1 (at every step) or more", g.Memory)
	case g.Activations < 0:
		return fmt.Errorf("guard.activations is %d: give 0 (never), 1 (at every step) or more", g.Activations)
	case g.Replay < 0:
		return fmt.Errorf("guard.replay is %d: give 0 (never) or the steps between those that are computed twice", g.Replay)
	}
	return nil
}

const (
	normSteps      = 64  // window of the median
	leastNorms     = 32  // minimum number of known norms
	skipSteps      = 100 // window in which skipped steps are counted
	rememberedSkip = 1000
)

// norms holds the gradient norms of the last steps.
type norms []record.Number

func (n *norms) add(norm float64) {
	*n = append(*n, record.Number(norm))
	*n = (*n)[max(0, len(*n)-normSteps):]
}

// median returns the lower median. ok is false if too few norms are known.
func (n norms) median() (m float64, ok bool) {
	if len(n) < leastNorms {
		return 0, false
	}
	return float64(slices.Sorted(slices.Values(n))[(len(n)-1)/2]), true
}

// unclippedSpike is the norm that a spike exceeds where gradients are not clipped: the default of
// optimizer.clip_norm.
const unclippedSpike = 1

// fault describes what is wrong with a gradient norm that follows those in n. It is empty if
// nothing is. A norm of up to clipNorm is no spike: clipping accepts it as it is. The norms of a
// run that has converged are near 0, where some are many times others.
func (g Guard) fault(norm, clipNorm float64, n norms) string {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return fmt.Sprintf("%g, which is not finite", norm)
	}
	least := cmp.Or(clipNorm, unclippedSpike)
	if m, ok := n.median(); ok && g.Spike > 0 && norm > least && norm > g.Spike*m {
		return fmt.Sprintf("%g, more than %g times the median of the last %d, %g", norm, g.Spike, len(n), m)
	}
	return ""
}

// attempt is the result of computing the gradients of a step: the same on all ranks.
type attempt struct {
	norm   float64 // of the summed gradients
	totals totals
	sum    uint64 // checksum of the gradients; 0 if the step is not replayed
}

// same compares bit by bit.
func (a attempt) same(b attempt) bool {
	return a.sum == b.sum && math.Float64bits(a.norm) == math.Float64bits(b.norm) && math.Float64bits(a.totals.loss) == math.Float64bits(b.totals.loss)
}

// String implements [fmt.Stringer].
func (a attempt) String() string {
	loss := a.totals.meanLoss()
	return fmt.Sprintf("loss %v, gradient norm %v", loss, a.norm)
}

// gradientVerdict says what to do with the gradients of an attempt.
type gradientVerdict int

const (
	computeAgain gradientVerdict = iota
	useGradients
	skipStep
)

// gradientGuard judges the attempts of a step.
type gradientGuard struct {
	Guard
	comm     *collective.Comm
	ex       *tensor.Exec
	optim    *optim.Optimizer
	progress *progress
	alarms   *alarms
	attempts []attempt // of the current step
}

// judge decides what follows the newest attempt of the current step. All ranks decide alike, from
// numbers that all of them have. It is collective.
func (g *gradientGuard) judge(a attempt) (v gradientVerdict, err error) {
	replayed := due(g.Replay, g.progress.Step+1)
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
	if v != computeAgain {
		g.attempts = g.attempts[:0]
	}
	return v, nil
}

// judgeFirst accepts an attempt without faults, unless the step is replayed.
func (g *gradientGuard) judgeFirst(first attempt, replayed bool) gradientVerdict {
	if replayed || g.wrong(first) != "" {
		return computeAgain
	}
	return useGradients
}

// judgeSecond accepts the second attempt or skips the step. If the step is replayed and the
// attempts differ, it asks for a third.
func (g *gradientGuard) judgeSecond(first, second attempt, replayed bool) gradientVerdict {
	if replayed && !second.same(first) {
		return computeAgain
	}
	step, wrong := g.progress.Step+1, g.wrong(first)
	switch again := g.wrong(second); {
	case again != "":
		g.alarms.raise("step %d is skipped and changes no weight: its gradient norm is %s, and %s when computed again", step, wrong, again)
		return skipStep
	case wrong != "":
		g.alarms.raise("step %d had a transient fault: its gradient norm was %s; computed again it is %v, which is used", step, wrong, second.norm)
	}
	return useGradients
}

// disagree reports whether two attempts have differed, so that a third one decides.
func (g *gradientGuard) disagree() bool { return len(g.attempts) == 2 }

// judgeThird accepts what two of three attempts agree on. The first two differ.
func (g *gradientGuard) judgeThird(first, second, third attempt) gradientVerdict {
	step, wrong := g.progress.Step+1, g.wrong(third)
	switch majority := third.same(first) || third.same(second); {
	case !majority:
		g.alarms.raise("step %d is skipped and changes no weight: it gave three different results: %v; %v; %v: this machine does not compute reliably", step, first, second, third)
		return skipStep
	case wrong != "":
		g.alarms.raise("step %d is skipped and changes no weight: its gradient norm is %s in two of three attempts: %v; %v; %v", step, wrong, first, second, third)
		return skipStep
	}
	g.alarms.raise("step %d had a transient fault: two attempts gave %v and %v, a third %v, which is used", step, first, second, third)
	return useGradients
}

// wrong describes what is wrong with an attempt; empty if nothing is.
func (g *gradientGuard) wrong(a attempt) string {
	return g.Guard.fault(a.norm, g.optim.ClipNorm, g.progress.Norms)
}

// checksum returns a checksum of the summed gradients of all ranks. Neither loss nor norm shows
// that a gradient has the wrong sign. It is collective.
func (g *gradientGuard) checksum() (sum uint64, err error) {
	defer g.ex.Enter(g.ex.Enter(profile.Guards))
	mine := []uint64{0}
	for t := range g.optim.Gradients {
		mine[0] = addSum(mine[0], g.ex, t)
	}
	all := make([]uint64, g.comm.Size())
	if err := collective.AllGather(g.comm, all, mine); err != nil {
		return 0, fmt.Errorf("comparing checksums of gradients: %w", err)
	}
	for _, s := range all {
		sum = sum*sumPrime ^ s
	}
	return sum, nil
}

// skip records that a step has changed no weight.
func (p *progress) skip(step int) {
	p.Skipped++
	p.SkippedSteps = append(p.SkippedSteps, step)
	p.SkippedSteps = p.SkippedSteps[max(0, len(p.SkippedSteps)-rememberedSkip):]
}

// SkipError ends a run that has skipped too many steps. Restarting it unchanged would not help.
type SkipError struct {
	Steps []int // within the last 100
	Most  int
}

// Error implements error.
func (e *SkipError) Error() string {
	return fmt.Sprintf("steps %s were skipped, more than %d of %d (guard.skips): the weights of the last good step are saved; lower optimizer.lr, or leave the data of these steps out",
		strings.Trim(fmt.Sprint(e.Steps), "[]"), e.Most, skipSteps)
}

// tooManySkips returns a [*SkipError] if the last step is one skip too many.
func (g *gradientGuard) tooManySkips(s Step) error {
	if !s.Skipped {
		return nil
	}
	from, _ := slices.BinarySearch(g.progress.SkippedSteps, s.Step-skipSteps+1)
	recent := g.progress.SkippedSteps[from:]
	if len(recent) <= g.Skips {
		return nil
	}
	return &SkipError{slices.Clone(recent), g.Skips}
}
