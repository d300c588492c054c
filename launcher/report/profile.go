package report

import (
	"fmt"
	"slices"
	"time"

	"spmoe/launcher/trainer/events"
)

// Profile prints a table of the time of a step by kind of work. A narrow terminal shows only the
// columns that fit.
func (c Console) Profile(p events.Profile) {
	if p.Steps == 0 {
		c.printf("profile: nothing was measured, because the first step does not count: make 2 or more\n")
		return
	}
	title := []string{fmt.Sprintf("profile of a step: mean of %s and %s", Plural(p.Steps, "warm step"), Plural(p.Ranks, "rank"))}
	head := []string{"ms", "share"}
	if p.Ranks > 1 {
		title = append(title, fmt.Sprintf("rank %d waited least", p.Slowest))
		head = append(head, fmt.Sprintf("rank %d ms", p.Slowest))
	}
	c.printf("%s\n", wrap(title, c.Width))
	c.row("", head)
	for _, f := range append(slices.Clone(p.Families), p.Step) {
		share := 100 * float64(f.Mean) / float64(p.Step.Mean)
		c.row(f.Name, []string{milliseconds(f.Mean), fmt.Sprintf("%.1f%%", share), milliseconds(f.Slowest)}[:len(head)])
	}
}

// row prints a name and those right-aligned cells that fit.
func (c Console) row(name string, cells []string) {
	line := fmt.Sprintf("  %-20s", name)
	for _, cell := range cells {
		cell = fmt.Sprintf("%11s", cell)
		if c.Width > 0 && len(line)+len(cell) > c.Width {
			break
		}
		line += cell
	}
	c.printf("%s\n", line)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.3f", 1e3*d.Seconds()) }

// Profile prints the time of a step by kind of work, in seconds.
func (j JSON) Profile(p events.Profile) {
	mean, slowest := fields{}, fields{}
	for _, f := range p.Families {
		mean[f.Name], slowest[f.Name] = f.Mean.Seconds(), f.Slowest.Seconds()
	}
	j.print("profile", fields{
		"steps": p.Steps, "np": p.Ranks, "slowest_rank": p.Slowest, "step_s": p.Step.Mean.Seconds(), "slowest_step_s": p.Step.Slowest.Seconds(),
		"mean_s": mean, "slowest_s": slowest,
	})
}
