package convergence

// The result of a comparison in words, and all its numbers as JSON.

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// null returns the null arm.
func (r Result) null() ArmResult { return r.Arms[len(r.Arms)-1] }

// Verdict returns the verdict over all arms except the null arm: different if any arm is, else
// undecided if any is, else equivalent. It is undecided if the null arm is different.
func (r Result) Verdict() string {
	if r.null().Verdict == Different {
		return Undecided
	}
	verdict := Equivalent
	for _, a := range r.Arms[1 : len(r.Arms)-1] {
		if a.Verdict != Equivalent && verdict != Different {
			verdict = a.Verdict
		}
	}
	return verdict
}

// conditions says what a verdict holds for.
func (r Result) conditions() string {
	s := r.Setup
	tokens := float64(s.Steps) * float64(s.Batch) * float64(s.Seq)
	return fmt.Sprintf("%s with %s parameters, %.2g tokens per parameter, %s", s.Flavor, report.Count(s.Parameters),
		tokens/float64(s.Parameters), report.Plural(len(s.Seeds), "seed"))
}

// Sentence states an arm's verdict, what it rests on and what it holds for.
func (r Result) Sentence(a ArmResult) string {
	base, verdict := r.Arms[0].Name, strings.ToUpper(a.Verdict)
	if failure := r.failure(a); failure != "" {
		return fmt.Sprintf("%s is %s: %s (%s)", a.Name, verdict, failure, r.conditions())
	}
	text := fmt.Sprintf("%s is %s", a.Name, verdict)
	switch a.Verdict {
	case Equivalent:
		text += fmt.Sprintf(" to %s within %.3g %%", base, 100*r.Margin)
	case Different:
		text += " from " + base
	default:
		text += fmt.Sprintf(": it was not shown to be equivalent to %s within %.3g %%, nor to differ", base, 100*r.Margin)
	}
	text += fmt.Sprintf(": training loss %s, validation loss %s, p %s after Holm, least margin %.2f %% (%s)",
		a.Train, a.HeldOut, probability(a.Holm), 100*a.leastMargin(), r.conditions())
	switch {
	case a.Verdict == Undecided:
		// To show it with a chance of 80 % takes the normal quantiles of 0.95 and 0.9, whose sum is
		// 2.93, and some more seeds because the scatter is an estimate.
		seeds := 2 + math.Ceil(math.Pow(2.93*max(a.Train.SD, a.HeldOut.SD)/r.Margin, 2))
		text += fmt.Sprintf("; if there is no difference, about %.0f new seeds would show equivalence with a chance of 80 %%", seeds)
	case a.Verdict == Different && a.Name == r.null().Name:
		text += "; it differs in rounding alone, so this comparison cannot be trusted"
	}
	return text
}

// failure says why an arm has no test, or returns "".
func (r Result) failure(a ArmResult) string {
	for _, arm := range []ArmResult{r.Arms[0], a} {
		for _, run := range arm.Runs {
			if run.Diverged {
				return fmt.Sprintf("%s has diverged with seed %d, its loss is no better than chance", arm.Name, run.Seed)
			}
		}
	}
	switch {
	case a.Train == nil || a.HeldOut == nil:
		return "it has no finite difference"
	case len(a.Runs) == 1:
		return fmt.Sprintf("one seed says nothing about others: training loss %s, validation loss %s", a.Train, a.HeldOut)
	}
	return ""
}

// leastMargin returns the least margin within which both losses would have been equivalent.
func (a ArmResult) leastMargin() float64 { return max(a.Train.LeastMargin, a.HeldOut.LeastMargin) }

// String shows the mean in percent, with its 95 % interval if there are several seeds.
func (d *Difference) String() string {
	text := fmt.Sprintf("%+.2f %%", 100*d.Mean)
	if len(d.Pairs) > 1 {
		text += fmt.Sprintf(" (%+.2f to %+.2f)", 100*d.CI95[0], 100*d.CI95[1])
	}
	return text
}

func probability(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// ResultFile is the name of the file with all numbers of a result.
const ResultFile = "result.json"

// write writes the numbers of a result to a folder.
func (r Result) write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(folder, ResultFile), append(text, '\n'))
}
