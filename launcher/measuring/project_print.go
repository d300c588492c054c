package measuring

// The text output of project: the budget of a step, and scores on published runs.

import (
	"fmt"
	"io"

	"spmoe/bench/projection"
	"spmoe/launcher/cli"
)

func printBudget(w io.Writer, r projected, explain bool) {
	b, run := r.Budget, r.Budget.Run
	fmt.Fprintf(w, "%s on %d %s, %s, %s, %s exchange: seq %d, batch %d, micro-batch %d, TP %d, PP %d x %d, EP %d, recompute %s, routing %s\n",
		run.Model, run.GPUs, run.GPU, run.Precision, run.Software, run.Exchange, run.Seq, run.Batch, run.MicroBatch, run.TP, run.PP, run.VP, run.EP, run.Recompute, run.Routing)
	fmt.Fprintf(w, "  %.0f tokens/s per GPU, 80 %% interval %.0f to %.0f (kind: %s); %.0f tokens/s in total, %.4g s per step\n",
		b.Tokens, b.Low, b.High, b.Kind, b.Tokens*float64(run.GPUs), b.Step)
	fmt.Fprintf(w, "  %.0f model TFLOP/s per GPU (%.1f GFLOPs per token: causal attention, MTP counted), MFU %.1f %% of the dense BF16 peak\n", b.TFLOPS, b.FLOPs/1e9, 100*b.MFU)
	fmt.Fprintf(w, "  memory at least %.0f GB per GPU, without activations\n", b.GB)
	fmt.Fprintf(w, "\n  %-6s %-18s %9s %7s\n", "term", "", "ms/token", "share")
	for _, t := range b.Terms {
		fmt.Fprintf(w, "  %-6s %-18s %9.4f %6.1f%%\n", t.Symbol, t.Symbol.About(), t.MS, 100*t.MS/b.MS)
		if !explain {
			continue
		}
		fmt.Fprintf(w, "         %s\n", t.Formula)
		for _, c := range t.Constants {
			basis := fmt.Sprintf("%s: %s", c.Kind, c.Source)
			if c.Kind == projection.Fitted {
				basis = fmt.Sprintf("fitted, before %.4g: %s", c.Prior, c.Source)
			}
			fmt.Fprintf(w, "           %s = %.4g %s (%s)\n", c.Name, c.Value, c.Unit, basis)
		}
	}
	fmt.Fprintf(w, "  %-6s %-18s %9.4f\n", "sum", "", b.MS)
	if len(r.Published) == 0 {
		fmt.Fprintf(w, "\n  no published run of this model on this GPU: expect a larger error\n")
	} else {
		fmt.Fprintf(w, "\n  %-28s %-22s %9s %9s %7s  %s\n", "published, and fitted to", "", "published", "formula", "", "80 % interval")
	}
	for _, p := range r.Published {
		fmt.Fprintf(w, "  %-28s %-22s %9.0f %9.0f %+6.0f%%  %.0f to %.0f\n", p.ID, p.Framework, p.Published, p.Projected, 100*(p.Projected/p.Published-1), p.Low, p.High)
	}
	fmt.Fprintf(w, "  %s\n  constants SHA-256 %s\n", projection.Limits(), b.Fit)
}

// validate prints how far predictions of published runs are off, by group and by row.
func (f *projectFlags) validate(env cli.Env) error {
	scores, w := projection.PublishedScores(), env.Out
	if f.json {
		return printJSON(w, scores)
	}
	fmt.Fprintf(w, "constants SHA-256 %s\n", projection.Fit())
	fmt.Fprintf(w, "errors of the logarithm of tokens/s, and rows inside their 80 %% intervals:\n")
	fmt.Fprintf(w, "  %-52s %5s %7s %7s %7s %6s\n", "", "rows", "error", "bias", "inside", "width")
	for _, g := range scores.Groups {
		fmt.Fprintf(w, "  %-52s %5d %6.1f%% %+6.1f%% %6.0f%% %6.2f\n", g.Name, g.Rows, 100*g.Error, 100*g.Bias, 100*g.Inside, g.Width)
	}
	fmt.Fprintf(w, "\n  each row from the other frameworks\n  %-36s %-22s %3s %-4s %9s %7s %10s\n", "", "framework", "set", "tier", "published", "error", "then blind")
	for _, r := range projection.Rows() {
		line := fmt.Sprintf("  %-36s %-22s %3d %-4s %9.0f", r.ID, r.Framework, r.Set, r.Tier, r.Published)
		if e, ok := scores.Rows[r.ID]; ok {
			line += fmt.Sprintf(" %+6.1f%%", 100*e[1])
		} else {
			line += " not fitted: " + r.Unfitted
		}
		if r.Blind != nil {
			line += fmt.Sprintf(" %10.0f", r.Blind.Tokens)
		}
		fmt.Fprintln(w, line)
	}
	return nil
}
