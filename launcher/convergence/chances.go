package convergence

// What a design can be expected to show, in words, before the first run.

import (
	"fmt"
	"io"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/report"
)

// studies is the number of simulated studies behind a printed chance.
const studies = 4000

// WriteChances says how likely a design is to decide a comparison whose pairs scatter as measured.
func WriteChances(w io.Writer, d design.Design, s design.Scatter) {
	fmt.Fprintf(w, "pairs scatter by %.2f %% in training and %.2f %% in validation loss (SD of %s)\n", 100*s.Train, 100*s.HeldOut, report.Plural(s.Pairs, "pair"))
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
