package guard

// The guard of the gradients: it keeps unusable gradients from the weights. A step whose gradient
// norm is not finite, or is clipped and far above earlier norms, is computed again from the same
// rows. If the second attempt is fine, the first was wrong and the second is used; otherwise the
// step is skipped. A run that skips too many steps ends. Some steps are computed twice in any case,
// and must give the same bits.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spmoe/launcher/trainer/config"
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
	state.Lost
	config.Guard
	Ex    *tensor.Exec
	Optim *optim.Optimizer

	again bool // the step is computed again
	first Attempt
	sums  []uint32 // checksums of the first attempt, if the step is replayed
}

// Judge decides what follows the newest attempt of the current step. All ranks decide alike, from
// numbers that all of them have. A replayed step whose attempts differ ends the run, or the process
// of a rank. It is collective.
func (g *Gradients) Judge(a Attempt) (v Verdict, err error) {
	step := g.Progress.Step + 1
	replayed, wrong := config.Due(g.Replay, step), g.wrong(a)
	if !g.again {
		if g.again = replayed || wrong != ""; !g.again {
			return UseGradients, nil
		}
		g.first = a
		if replayed {
			g.sums = g.checksums(g.sums)
		}
		return ComputeAgain, nil
	}
	g.again = false
	if replayed {
		if err := g.compare(a); err != nil {
			return v, err
		}
	}
	switch before := g.wrong(g.first); {
	case wrong != "":
		g.Alarms.Raise("step %d is skipped and changes no weight: its gradient norm is %s, and %s when computed again", step, before, wrong)
		return skipStep, nil
	case before != "":
		g.Alarms.Raise("step %d had a transient fault: its gradient norm was %s; computed again it is %v, which is used", step, before, a.Norm)
	}
	return UseGradients, nil
}

// wrong describes what is wrong with an attempt; empty if nothing is.
func (g *Gradients) wrong(a Attempt) string {
	return Fault(g.Guard, a.Norm, g.Optim.ClipNorm, g.Progress.Norms)
}

// checksums returns the checksums of this rank's summed gradients, parameter by parameter. Neither
// loss nor norm shows that a gradient has the wrong sign.
func (g *Gradients) checksums(to []uint32) []uint32 {
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	to = to[:0]
	for _, grad := range g.Optim.Gradients {
		var sum tensor.Sum
		tensor.Words(g.Ex, &sum, grad)
		to = append(to, sum.Load())
	}
	return to
}

// compare compares the second attempt of a step with the first. The first rank with a gradient that
// differs is the one that ends. The update compares the gradients that it reads with these.
func (g *Gradients) compare(second Attempt) error {
	what, i, sums := "", 0, g.checksums(nil)
	for name := range g.Optim.Gradients {
		if sums[i] != g.sums[i] && what == "" {
			what = fmt.Sprintf("step %d, computed twice, has two gradients of %s, the first that differs", g.Progress.Step+1, name)
		}
		i++
	}
	found, err := state.GatherTexts(g.Comm, what)
	if err != nil {
		return err
	}
	one, two := g.first.Totals.Loss, second.Totals.Loss
	if found == nil && (math.Float64bits(one) != math.Float64bits(two) || math.Float64bits(g.first.Norm) != math.Float64bits(second.Norm)) {
		found = make([]string, g.Comm.Size())
		found[0] = fmt.Sprintf("step %d, computed twice, has two losses or norms: %v and %v, %v and %v", g.Progress.Step+1, one, two, g.first.Norm, second.Norm)
	}
	if found == nil {
		g.Optim.ExpectGradients(sums)
		return nil
	}
	first := slices.IndexFunc(found, func(what string) bool { return what != "" })
	clear(found[first+1:])
	return g.EndRanks(found, g.Progress.Step)
}
