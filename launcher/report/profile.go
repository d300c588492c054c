package report

import (
	"fmt"
	"slices"
	"time"

	"spmoe/launcher/trainer/events"
)

// Profile prints a table of the time of a step by kind of work.
func (c Console) Profile(p events.Profile) {
	if p.Steps == 0 {
		c.printf("profile: nothing was measured, because the first step does not count: make 2 or more\n")
		return
	}
	c.printf("profile of a step: mean of %s and %s", Plural(p.Steps, "warm step"), Plural(p.Ranks, "rank"))
	slowest := func(text string) string { return "" }
	if p.Ranks > 1 {
		c.printf("  rank %d waited least", p.Slowest)
		slowest = func(text string) string { return fmt.Sprintf("%11s", text) }
	}
	c.printf("\n%33s%11s%s\n", "ms", "share", slowest(fmt.Sprintf("rank %d ms", p.Slowest)))
	for _, f := range append(slices.Clone(p.Families), p.Step) {
		share := 100 * float64(f.Mean) / float64(p.Step.Mean)
		c.printf("  %-20s%11s%10.1f%%%s\n", f.Name, milliseconds(f.Mean), share, slowest(milliseconds(f.Slowest)))
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.3f", 1e3*d.Seconds()) }

// Profile prints the time of a step by kind of work, in seconds.
func (j JSON) Profile(p events.Profile) {
	mean, slowest := fields{}, fields{}
	for _, f := range p.Families {
		mean[f.Name], slowest[f.Name] = f.Mean.Seconds(), f.Slowest.Seconds()
	}
	j.print("profile", fields{
		"steps":          p.Steps,
		"np":             p.Ranks,
		"slowest_rank":   p.Slowest,
		"step_s":         p.Step.Mean.Seconds(),
		"slowest_step_s": p.Step.Slowest.Seconds(),
		"mean_s":         mean,
		"slowest_s":      slowest,
	})
}
