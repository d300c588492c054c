package trainer

// Guards of the gradients: what is not fit for use does not reach the weights. A step whose gradient norm is not finite, or far above
// those before, is computed once more, from the same rows. If that goes well, the first try was wrong and the second is used; otherwise
// the step is skipped. A run that skips too many ends.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/tensor/profile"
)

// Guard says what a run watches for.
type Guard struct {
	Spike  float64 `toml:"spike" help:"gradient norm, as a multiple of the median of the last 64, from which a step is computed again, and skipped if that changes nothing; 0: any finite one is used"`
	Skips  int     `toml:"skips" help:"most steps skipped within 100; one more ends the run with exit code 93"`
	Memory int     `toml:"memory" help:"steps between checks that neither weights nor optimizer state have changed by themselves; 1: at every step, 0: never"`
	Replay int     `toml:"replay" help:"steps between those whose gradients are computed twice and compared; 0: none"`
}

func (g Guard) validate() error {
	switch {
	case !(g.Spike == 0 || g.Spike > 1) || math.IsInf(g.Spike, 0):
		return fmt.Errorf("guard.spike is %g: give 0 (off) or a multiple of the median gradient norm above 1, such as 100", g.Spike)
	case g.Skips < 0:
		return fmt.Errorf("guard.skips is %d: give 0 (the first skipped step ends the run) or more", g.Skips)
	case g.Memory < 0:
		return fmt.Errorf("guard.memory is %d: give 0 (never), 1 (at every step) or more", g.Memory)
	case g.Replay < 0:
		return fmt.Errorf("guard.replay is %d: give 0 (never) or the steps between those that are computed twice", g.Replay)
	}
	return nil
}

const (
	normSteps      = 64  // that the median is of
	leastNorms     = 32  // that must be known
	skipSteps      = 100 // among which skipped ones are counted
	rememberedSkip = 1000
)

// norms holds the gradient norms of the last steps that were made.
type norms []record.Number

func (n *norms) add(norm float64) {
	*n = append(*n, record.Number(norm))
	*n = (*n)[max(0, len(*n)-normSteps):]
}

// median returns the lower median; ok is false if too few norms are known.
func (n norms) median() (m float64, ok bool) {
	if len(n) < leastNorms {
		return 0, false
	}
	return float64(slices.Sorted(slices.Values(n))[(len(n)-1)/2]), true
}

// fault says what is wrong with a gradient norm, after those in n; empty if nothing is.
func (g Guard) fault(norm float64, n norms) string {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return fmt.Sprintf("%g, which is not finite", norm)
	}
	if m, ok := n.median(); ok && g.Spike > 0 && norm > g.Spike*m {
		return fmt.Sprintf("%g, more than %g times the median of the last %d, %g", norm, g.Spike, len(n), m)
	}
	return ""
}

// attempt is what computing the gradients of a step has given: the same on all ranks.
type attempt struct {
	norm   float64 // of the gradients, which are summed
	totals totals
	sum    uint64 // checksum of the gradients; 0 if the step is not to be replayed
}

// same compares bit by bit.
func (a attempt) same(b attempt) bool {
	return a.sum == b.sum && math.Float64bits(a.norm) == math.Float64bits(b.norm) && math.Float64bits(a.totals.loss) == math.Float64bits(b.totals.loss)
}

func (a attempt) String() string {
	loss, _ := a.totals.means()
	return fmt.Sprintf("loss %v, gradient norm %v", loss, a.norm)
}

// compute makes the gradients of the step under way, as often as it takes. Those that the optimizer then holds are of the attempt that
// it returns, and good says whether they may change the weights.
func (r *rank) compute(ctx context.Context) (a attempt, good bool, err error) {
	first, err := r.attempt(ctx)
	if err != nil {
		return first, false, err
	}
	step, wrong := r.progress.Step+1, r.fault(first)
	replayed := every(r.cfg.Guard.Replay, step)
	if wrong == "" && !replayed {
		return first, true, nil
	}
	second, err := r.again(ctx)
	if err != nil {
		return second, false, err
	}
	if replayed && !second.same(first) {
		return r.decide(ctx, first, second)
	}
	switch again := r.fault(second); {
	case again != "":
		r.alarm("step %d is skipped, and changes no weight: its gradient norm is %s, and when it was computed again %s", step, wrong, again)
		return second, false, nil
	case wrong != "":
		r.alarm("step %d had a transient fault: its gradient norm was %s; computed again, it is %v, which is used", step, wrong, second.norm)
	}
	return second, true, nil
}

// decide computes a step for the third time, of which two attempts differ: what two of the three give is used.
func (r *rank) decide(ctx context.Context, first, second attempt) (a attempt, good bool, err error) {
	step := r.progress.Step + 1
	third, err := r.again(ctx)
	if err != nil {
		return third, false, err
	}
	wrong := r.fault(third)
	switch majority := third.same(first) || third.same(second); {
	case !majority:
		r.alarm("step %d is skipped, and changes no weight: it gave another result each of three times: %v; %v; %v: this machine does not compute reliably", step, first, second, third)
		return third, false, nil
	case wrong != "":
		r.alarm("step %d is skipped, and changes no weight: its gradient norm is %s, in two of three attempts: %v; %v; %v", step, wrong, first, second, third)
		return third, false, nil
	}
	r.alarm("step %d had a transient fault: two attempts gave %v and %v, a third %v, which is used", step, first, second, third)
	return third, true, nil
}

func (r *rank) fault(a attempt) string { return r.cfg.Guard.fault(a.norm, r.progress.Norms) }

// attempt computes the gradients of the rows that were read last, from weights that are as they were published.
func (r *rank) attempt(ctx context.Context) (a attempt, err error) {
	for {
		r.injure(false)
		r.touchMemory()
		local, err := r.gradients()
		if err != nil {
			return a, err
		}
		r.injure(true)
		r.touchGradients()
		if a.norm, err = r.optim.Reduce(); err != nil {
			return a, err
		}
		if ctx.Err() != nil {
			local.stop = 1
		}
		if a.totals, err = r.sumTotals(local); err != nil {
			return a, err
		}
		if mended, err := r.checkMemory(); err != nil {
			return a, err
		} else if !mended {
			a.sum, err = r.sumGradients()
			return a, err
		}
		r.discard()
	}
}

// sumGradients returns a checksum of the summed gradients of all ranks, if the step under way is one to be replayed: neither loss nor norm
// would tell that a gradient has another sign. It is collective.
func (r *rank) sumGradients() (uint64, error) {
	if !every(r.cfg.Guard.Replay, r.progress.Step+1) {
		return 0, nil
	}
	defer r.ex.Enter(r.ex.Enter(profile.Guards))
	mine := []uint64{0}
	for t := range r.optim.Gradients {
		mine[0] = addSum(mine[0], r.ex, t)
	}
	all := make([]uint64, r.comm.Size())
	if err := collective.AllGather(r.comm, all, mine); err != nil {
		return 0, fmt.Errorf("comparing checksums of gradients: %w", err)
	}
	sum := uint64(0)
	for _, s := range all {
		sum = sum*sumPrime ^ s
	}
	return sum, nil
}

// injure lets a test do harm.
func (r *rank) injure(computed bool) {
	if r.job.injure != nil {
		r.job.injure(r, computed)
	}
}

// again is attempt once more.
func (r *rank) again(ctx context.Context) (attempt, error) {
	r.discard()
	return r.attempt(ctx)
}

// discard forgets what an attempt has left behind.
func (r *rank) discard() {
	r.optim.Discard()
	for _, route := range r.routings {
		clear(route.Load)
	}
	r.recording.discard()
}

// skipped notes that the step under way, whose number is given, has changed no weight.
func (p *progress) skipped(step int) {
	p.Skipped++
	p.SkippedSteps = append(p.SkippedSteps, step)
	p.SkippedSteps = p.SkippedSteps[max(0, len(p.SkippedSteps)-rememberedSkip):]
}

// SkipError ends a run of which too many steps were skipped. To start it again as it is would be of no use.
type SkipError struct {
	Steps []int // within the last 100
	Most  int
}

func (e *SkipError) Error() string {
	return fmt.Sprintf("steps %s were skipped, more than %d of %d (guard.skips): the weights of the last good step are saved; lower optimizer.lr, or leave the data of these steps out",
		strings.Trim(fmt.Sprint(e.Steps), "[]"), e.Most, skipSteps)
}

// tooManySkips returns a [*SkipError] if the step that was made last is one skip too many.
func (r *rank) tooManySkips(s Step) error {
	if !s.Skipped {
		return nil
	}
	from, _ := slices.BinarySearch(r.progress.SkippedSteps, s.Step-skipSteps+1)
	recent := r.progress.SkippedSteps[from:]
	if len(recent) <= r.cfg.Guard.Skips {
		return nil
	}
	return &SkipError{slices.Clone(recent), r.cfg.Guard.Skips}
}

// alarm tells people of something, once.
func (r *rank) alarm(format string, args ...any) {
	if r.lead() {
		r.tell(Alarm{r.progress.Step, fmt.Sprintf(format, args...)})
	}
}
