package convergence

// The result as text, 80 columns wide.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// nameWidth is the width of the first column. A longer name of an arm gets a line of its own.
const nameWidth = 16

// WriteSummary writes the tables of a result and its verdicts.
func WriteSummary(w io.Writer, r Result) {
	baseline := r.Arms[0]
	fmt.Fprintf(w, "\n%-*s %-8s %7s %7s %16s %6s %s\n", nameWidth, "arm", "text", "loss", "diff %", "95% CI", "TOST p", "verdict")
	for _, a := range r.Arms {
		writeLoss(w, firstColumn(w, a.Name), "training", a.Runs, trainLoss, a.Train, a.Verdict)
		writeLoss(w, "", "val", a.Runs, heldOutLoss, a.HeldOut, "")
		if r.Setup.EMA != 0 {
			var second Averaged
			if a.Averaged != nil {
				second = *a.Averaged
			}
			writeLoss(w, "", "averaged", a.Runs, averagedLoss, second.Difference, second.Verdict)
		}
	}
	fmt.Fprintf(w, "\n%-*s %22s %9s\n", nameWidth, "", "SQNR in dB, median", "same")
	fmt.Fprintf(w, "%-*s %6s %6s %8s %9s %12s %8s\n", nameWidth, "arm", "input", "weight", "gradient", "experts", "tokens/s", "speed")
	for _, a := range r.Arms {
		fmt.Fprintf(w, "%-*s %6s %6s %8s %9s %12s %8s\n", nameWidth, firstColumn(w, a.Name), dB(a, record.Input), dB(a, record.Weight), dB(a, record.Gradient),
			sameExperts(a), report.Thousands(a.Speed), ratio(a.Speed, baseline.Speed))
	}
	if r.Setup.Jobs > 1 {
		fmt.Fprintf(w, "%d concurrent runs: their speeds are not comparable\n", r.Setup.Jobs)
	}
	fmt.Fprintln(w)
	if n := len(r.Setup.Seeds); n > 1 {
		fmt.Fprintf(w, "%s, SD of the loss over its %d seeds:\n  %.2f %% (training), %.2f %% (validation)\n",
			baseline.Name, n, 100*r.Spread.Train.SD, 100*r.Spread.HeldOut.SD)
	}
	for _, a := range r.Arms[1:] {
		fmt.Fprintln(w, r.Statement(a))
	}
	if text := r.Lowest(); text != "" {
		fmt.Fprintln(w, text)
	}
}

// firstColumn returns an arm's name if it fits. Otherwise it writes the name on a line of its own.
func firstColumn(w io.Writer, name string) string {
	if len(name) <= nameWidth {
		return name
	}
	fmt.Fprintln(w, name)
	return ""
}

func writeLoss(w io.Writer, name, text string, runs []Run, of func(Run) float64, d *Difference, verdict string) {
	mean, _ := meanSD(losses(runs, of))
	diff, ci := percents(d)
	p := ""
	if ci != "" {
		p = probability(d.P)
	}
	line := fmt.Sprintf("%-*s %-8s %7s %7s %16s %6s %s", nameWidth, name, text, nats(mean), diff, ci, p, verdict)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// percents formats a difference and, if there are several seeds, its interval.
func percents(d *Difference) (mean, ci string) {
	if d == nil {
		return "", ""
	}
	if d.Seeds > 1 {
		ci = fmt.Sprintf("%+.3f..%+.3f", 100*d.CI95[0], 100*d.CI95[1])
	}
	return fmt.Sprintf("%+.3f", 100*d.Mean), ci
}

func probability(p float64) string {
	if p < 0.0001 {
		return "<.0001"
	}
	return fmt.Sprintf("%.4f", p)
}

func nats(loss float64) string {
	if !finite(loss) {
		return "none"
	}
	return fmt.Sprintf("%.4f", loss)
}

func dB(a Arm, kind string) string {
	v := MedianSQNR(a.Quantized(kind))
	switch {
	case math.IsNaN(v):
		return "-"
	case math.IsInf(v, 1):
		return "exact"
	}
	return fmt.Sprintf("%.1f", v)
}

func sameExperts(a Arm) string {
	share, ok := a.LastAgreement()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func ratio(speed, baseline float64) string {
	if baseline == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", speed/baseline)
}

// bothLosses are the losses that a verdict is about.
var bothLosses = []struct {
	name string
	of   func(Arm) *Difference
}{
	{"training", func(a Arm) *Difference { return a.Train }},
	{"validation", func(a Arm) *Difference { return a.HeldOut }},
}

// WriteSizes writes, for every arm that at least two results share, its differences by size and the
// trends that they exclude.
func WriteSizes(w io.Writer, results []Result) error {
	names := map[string]bool{}
	for _, r := range results {
		for _, arm := range r.Arms {
			train, heldOut := bySize(results, arm.Name, bothLosses[0].of), bySize(results, arm.Name, bothLosses[1].of)
			_, trend := trendOf(train)
			_, too := trendOf(heldOut)
			if names[arm.Name] || !trend || !too {
				continue
			}
			names[arm.Name] = true
			fmt.Fprintf(w, "%s against %s\n", arm.Name, results[0].Arms[0].Name)
			writeTrend(w, bothLosses[0].name, train)
			writeTrend(w, bothLosses[1].name, heldOut)
		}
	}
	if len(names) == 0 {
		return errors.New("no precision has been compared with one baseline and two seeds or more at two sizes")
	}
	return nil
}

// bySize returns the differences of an arm to the baseline of the first result, smallest model
// first. It leaves out those that have no scatter.
func bySize(results []Result, name string, of func(Arm) *Difference) (all []sizeGap) {
	for _, r := range results {
		for _, arm := range r.Arms {
			d := of(arm)
			if arm.Name == name && d != nil && d.Seeds > 1 && d.SD > 0 && r.Arms[0].Name == results[0].Arms[0].Name {
				all = append(all, sizeGap{r.Setup.Parameters, d})
			}
		}
	}
	slices.SortFunc(all, func(a, b sizeGap) int { return cmp.Compare(a.parameters, b.parameters) })
	return all
}

func writeTrend(w io.Writer, loss string, all []sizeGap) {
	for _, d := range all {
		fmt.Fprintf(w, "  %-10s %10s parameters, %8s: %+.3f %%, 95 %% interval %+.3f to %+.3f\n", loss, report.Count(d.parameters),
			report.Plural(d.Seeds, "seed"), 100*d.Mean, 100*d.CI95[0], 100*d.CI95[1])
	}
	t, _ := trendOf(all)
	fmt.Fprintf(w, "  %-10s trend per factor of ten in parameters: %+.3f %%; excluded: below %+.3f and above %+.3f\n", loss,
		100*t.Slope, 100*t.CI95[0], 100*t.CI95[1])
}
