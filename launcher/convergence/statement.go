package convergence

// What a comparison has shown, and what it can be expected to show, in words.

import (
	"fmt"
	"io"
	"math"
	"strings"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/report"
)

// Statement states an arm's verdict and what it rests on, in lines of at most 80 columns.
func (r Result) Statement(a Arm) string {
	lines := []string{fmt.Sprintf("%s against %s, margin %.3g %%, %s: %s", a.Name, r.Arms[0].Name, 100*r.Margin,
		report.Plural(len(a.Runs), "seed"), strings.ToUpper(a.Verdict))}
	switch failed := r.failure(a); {
	case failed != "":
		lines = append(lines, failed)
	case len(a.Runs) < 2:
		lines = append(lines, "one seed says nothing about others")
	case a.Train == nil || a.HeldOut == nil:
		lines = append(lines, "it has no finite difference")
	default:
		lines = append(lines, signs(a)...)
		if a.Verdict == Undecided {
			lines = append(lines, r.advice(a))
		}
		lines = append(lines, smallest(a))
		lines = append(lines, overTheRun(a.Course)...)
		lines = append(lines, r.text(a)...)
		lines = append(lines, a.secondary()...)
	}
	return strings.Join(lines, "\n  ")
}

// failure names a run that diverged. It returns "" if there is none.
func (r Result) failure(a Arm) string {
	for _, arm := range []Arm{r.Arms[0], a} {
		for _, run := range arm.Runs[:len(a.Runs)] {
			if run.Diverged {
				return fmt.Sprintf("%s has diverged with seed %d: its loss is no better than chance", arm.Name, run.Seed)
			}
		}
	}
	return ""
}

// signs says which losses are shown to be higher or lower than the baseline's.
func signs(a Arm) (lines []string) {
	for _, loss := range bothLosses {
		if d := loss.of(a); d.Sign() != 0 {
			word := map[int]string{1: "higher", -1: "lower"}[d.Sign()]
			lines = append(lines, fmt.Sprintf("%s loss is %s: %+.3f %%, 95 %% interval %+.3f to %+.3f", loss.name, word,
				100*d.Mean, 100*d.CI95[0], 100*d.CI95[1]))
		}
	}
	if lines == nil {
		return []string{"no difference is shown"}
	}
	return lines
}

// goodChance is the chance of a verdict that an undecided comparison is advised to aim for.
const goodChance = 0.8

// advice estimates how many seeds would decide an undecided arm.
func (r Result) advice(a Arm) string {
	scatter, _ := a.Scatter()
	seeds, ok := design.SeedsFor(goodChance, r.Margin, scatter, MaxSeeds)
	if !ok {
		return fmt.Sprintf("the pairs scatter so much that %d seeds would not decide it", seeds)
	}
	return fmt.Sprintf("%s have a chance of %.0f %% to show equivalence, if it is so", report.Plural(seeds, "new seed"), 100*goodChance)
}

// smallest states the smallest margin that would have been passed.
func smallest(a Arm) string {
	return fmt.Sprintf("the smallest margin to pass is %.2f %% (training), %.2f %% (validation)", 100*a.Train.Smallest, 100*a.HeldOut.Smallest)
}

// overTheRun shows how the difference in training loss develops.
func overTheRun(course []Window) []string {
	if len(course) == 0 {
		return nil
	}
	var means []string
	for _, w := range course {
		means = append(means, fmt.Sprintf("%+.2f", 100*w.Mean))
	}
	return []string{fmt.Sprintf("training loss over the run, %%: %s", strings.Join(means, " "))}
}

// textShare is the share of the margin that the choice of the validation text may make up.
const textShare = 0.2

// text states the error that the choice of the validation text adds, and what reduces it.
func (r Result) text(a Arm) []string {
	e := a.TextError
	if e == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("error by the choice of the validation text: %.3f %% (SE)", 100*e)}
	if limit := textShare * r.Margin; e > limit {
		lines = append(lines, fmt.Sprintf("for a fifth of the margin give --eval-sequences %.0f times as many", math.Ceil(math.Pow(e/limit, 2))))
	}
	return lines
}

// Lowest names the arm with the lowest mean validation loss of a comparison that varies settings.
// It returns "" for others.
func (r Result) Lowest() string {
	if r.Varied == nil {
		return ""
	}
	best, lowest := -1, math.Inf(1)
	for i, a := range r.Arms {
		mean, _ := meanSD(losses(a.Runs, heldOutLoss))
		if r.failure(a) == "" && mean < lowest {
			best, lowest = i, mean
		}
	}
	if best < 0 {
		return "no arm has a loss: all runs diverged"
	}
	text := fmt.Sprintf("lowest validation loss: %s, %.4f nats", r.Arms[best].Name, lowest)
	if best > 0 {
		text += fmt.Sprintf(", %+.2f %% against the baseline (%s)", 100*r.Arms[best].HeldOut.Mean, r.Arms[best].Verdict)
	}
	return text
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

// studies is the number of simulated studies behind a printed chance.
const studies = 4000

// WriteChances says how likely a design is to decide a comparison whose pairs scatter as measured.
func WriteChances(w io.Writer, d design.Design, s design.Scatter) {
	fmt.Fprintf(w, "pairs scatter by %.2f %% in training and %.2f %% in validation loss (SD of %s)\n",
		100*s.Train, 100*s.HeldOut, report.Plural(s.Pairs, "pair"))
	chances := d.Simulate(s, design.Effect{}, studies)
	line := fmt.Sprintf("%s: %s chance to show equivalence within %.3g %%, if there is no difference", report.Plural(d.Seeds(), "seed"),
		percent(chances.Equivalent), 100*d.Margin)
	if len(d.Looks) > 1 {
		fmt.Fprintf(w, "up to %s, after %.0f on average\n", line, chances.Seeds)
		return
	}
	if seeds, ok := design.SeedsFor(goodChance, d.Margin, s, MaxSeeds); ok && chances.Equivalent < goodChance {
		line += fmt.Sprintf("; %s need %s", percent(goodChance), report.Plural(seeds, "seed"))
	}
	fmt.Fprintln(w, line)
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// WriteSimulation writes how often each verdict comes out of simulated studies of a design, for
// several true differences. The first three rows of a sound design have type-I errors below 5 %.
func WriteSimulation(w io.Writer, d design.Design, s design.Scatter, studies int) {
	fmt.Fprintf(w, "%s simulated studies per row, margin %.3g %%\n", report.Thousands(float64(studies)), 100*d.Margin)
	fmt.Fprintf(w, "looks after%s seeds\n\n", seedsOf(d))
	fmt.Fprintf(w, "%-38s %10s %10s %10s %6s\n", "true difference", "equivalent", "different", "undecided", "seeds")
	m := d.Margin
	for _, row := range []struct {
		name string
		design.Effect
	}{
		{"none (different: type-I error)", design.Effect{}},
		{"margin, training (equivalent: type I)", design.Effect{Train: m}},
		{"margin, validation (equivalent: type I)", design.Effect{HeldOut: m}},
		{"half the margin, both losses", design.Effect{Train: m / 2, HeldOut: m / 2}},
		{"twice the margin, both losses", design.Effect{Train: 2 * m, HeldOut: 2 * m}},
	} {
		c := d.Simulate(s, row.Effect, studies)
		fmt.Fprintf(w, "%-39s %8.2f %% %8.2f %% %8.2f %% %6.1f\n", row.name, 100*c.Equivalent, 100*c.Different, 100*c.Undecided, c.Seeds)
	}
}

func seedsOf(d design.Design) (list string) {
	for _, look := range d.Looks {
		list += fmt.Sprintf(" %d", look.Seeds)
	}
	return list
}
