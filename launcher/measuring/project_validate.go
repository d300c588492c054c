package measuring

// project validate and project sweep: published figures, and the search for layouts.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/bench/projection"
	"spmoe/launcher/cli"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
)

// validate prints predicted against published throughput, and whether the requirements hold.
func (f *projectFlags) validate(env cli.Env) error {
	if err := f.checkSamples(); err != nil {
		return err
	}
	groups, err := projection.Validate(f.samples, f.seed)
	if err != nil {
		return err
	}
	gates, err := projection.Gates(groups)
	if err != nil {
		return err
	}
	w := env.Out
	if f.json {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(page.Projection{Groups: groups, Gates: gates, Excluded: projection.ExcludedRows(), Version: projection.ParameterVersion(), Hash: projection.ParameterHash()})
	}
	fmt.Fprintf(w, "parameters of %s, SHA-256 %s\n", projection.ParameterVersion(), projection.ParameterHash())
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s, %s: %d rows, %d predictions that differ and are no fits: mean absolute error %.1f %%, bias %+.1f %%, %.0f %% inside the 80 %% intervals (discrepancy %.3f, from the rows with other predictions)\n",
			g.Name, g.About, len(g.Rows), g.Distinct, 100*g.MAPE, 100*g.Bias, 100*g.Coverage, g.Sigma)
		fmt.Fprintf(w, "  %-24s %9s %9s %8s  %-14s\n", "row", "published", "predicted", "error", "interval")
		for _, p := range g.Rows {
			mark := ""
			if !p.Inside {
				mark = "outside; " + p.Why
			}
			for _, more := range []string{p.Fit, p.Note} {
				if more == "" {
					continue
				}
				if more == p.Fit {
					more = "fit: " + more
				}
				mark = strings.TrimPrefix(mark+"; "+more, "; ")
			}
			line := fmt.Sprintf("  %-24s %9.0f %9.0f %+7.1f%%  %-14s %s", p.ID, p.Published, p.Predicted, 100*p.Error, fmt.Sprintf("%.0f-%.0f", p.Interval[0], p.Interval[1]), mark)
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	}
	if err := printLadder(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nnot predicted:\n")
	for _, x := range projection.ExcludedRows() {
		fmt.Fprintf(w, "  %s: %s\n", x.Rows, x.Why)
	}
	fmt.Fprintf(w, "\nrequirements:\n")
	for _, g := range gates {
		verdict := "holds"
		if !g.Holds() {
			verdict = "MISSED"
		}
		limit := strconv.FormatFloat(g.Upper, 'g', -1, 64)
		if g.Least > 0 {
			limit = fmt.Sprintf("%g to %s", g.Least, limit)
		}
		fmt.Fprintf(w, "  %-7s %.4f (limit %s%s) %s\n", verdict, g.Value, limit, aimed(g), g.What)
	}
	return nil
}

// aimed says what a requirement aims at, and whether it is reached.
func aimed(g projection.Gate) string {
	switch {
	case g.Aim == projection.Aim{}:
		return ""
	case g.Reached():
		return fmt.Sprintf(", aim %s reached", g.Aim)
	}
	return fmt.Sprintf(", aim %s missed", g.Aim)
}

// printLadder prints TorchTitan's ladder on GB200, anchored at its first row only.
func printLadder(w io.Writer) error {
	steps, err := projection.Ladder(projection.LongLadder, projection.Central())
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nthe GB200 ladder of H1 anchored at its first row only: published over predicted at its last %.2f\n", projection.LadderError(steps))
	for _, s := range steps {
		fmt.Fprintf(w, "  %-24s %9.0f %9.0f %+7.1f%%\n", s.ID, s.Published, s.Predicted, 100*(s.Predicted/s.Published-1))
	}
	return nil
}

// sweep prints the Pareto-optimal layouts in speed and memory. It writes all layouts that fit as
// CSV and as a page.
func (f *projectFlags) sweep(env cli.Env) error {
	if f.layouts < 0 {
		return fmt.Errorf("--layouts is %d: give 0 (all) or more", f.layouts)
	}
	if _, err := f.complete(); err != nil {
		return err
	}
	points, seen, err := projection.Sweep(f.run, f.layouts)
	if err != nil {
		return err
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", " ")
		return encoder.Encode(points)
	}
	fmt.Fprintf(env.Out, "%d layouts of %d %s are possible, %d fit in memory; the best in speed and memory:\n", seen, f.run.GPUs, f.run.GPU, len(points))
	fmt.Fprintf(env.Out, "  %3s %3s %3s %4s %5s %-10s %10s %8s\n", "TP", "PP", "VP", "EP", "micro", "recompute", "tokens/s", "GB")
	for _, p := range points {
		if p.Best {
			fmt.Fprintf(env.Out, "  %3d %3d %3d %4d %5d %-10s %10.0f %8.0f\n", p.Run.TP, p.Run.PP, p.Run.VP, p.Run.EP, p.Run.MicroBatch, p.Run.Recompute, p.Tokens, p.Memory)
		}
	}
	if f.out == "" {
		return nil
	}
	if err := errors.Join(os.MkdirAll(f.out, 0o777), system.WriteFile(filepath.Join(f.out, "sweep.csv"), csv(points)), page.WriteSweep(f.out, points)); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	fmt.Fprintf(env.Out, "all layouts that fit: %s\n", filepath.Join(f.out, "sweep.csv"))
	return nil
}

// csv returns a table of layouts.
func csv(points []projection.Point) []byte {
	var b strings.Builder
	b.WriteString("tp,pp,vp,ep,micro_batch,recompute,tokens_per_second_per_gpu,memory_gb,pareto\n")
	for _, p := range points {
		fmt.Fprintf(&b, "%d,%d,%d,%d,%d,%s,%.2f,%.2f,%t\n", p.Run.TP, p.Run.PP, p.Run.VP, p.Run.EP, p.Run.MicroBatch, p.Run.Recompute, p.Tokens, p.Memory, p.Best)
	}
	return []byte(b.String())
}
