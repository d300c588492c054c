package measuring

// The text output of project: the headline scenarios and the budget of a step.

import (
	"fmt"
	"io"
	"strings"
)

func printHeadline(w io.Writer, r Projection) {
	fmt.Fprintf(w, "parameters of %s, SHA-256 %s\n", r.Version, r.Hash)
	fmt.Fprintf(w, "\nDeepSeek-V3 671B on 256 B200, calibrated only on 651 tokens/s per GPU (BF16, standard all-to-all):\n")
	fmt.Fprintf(w, "  %-13s %7s %8s %18s   %7s %8s %18s\n", "scenario", "DeepEP", "of 859", "80 % interval", "+MXFP8", "of 918", "80 % interval")
	for i, h := range r.Headlines {
		line := fmt.Sprintf("  %-13s", h.Scenario.Name)
		for j := 1; j <= 2; j++ {
			g := r.Ranges[i][j]
			line += fmt.Sprintf(" %7.0f %+7.1f%% %18s  ", h.Budgets[j].Tokens, 100*h.Error[j], fmt.Sprintf("%.0f-%.0f (±%.0f %%)", g.P10, g.P90, 100*g.Width()))
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	for _, h := range r.Headlines {
		fmt.Fprintf(w, "  %s (weight %g): %s\n", h.Scenario.Name, h.Scenario.Weight, h.Scenario.About)
	}
}

func printBudget(w io.Writer, r Projection, explain bool) {
	b, run := r.Budget, r.Budget.Run
	fmt.Fprintf(w, "\n%s on %d %s, %s, %s: seq %d, batch %d, micro-batch %d, TP %d, PP %d x %d, EP %d, recompute %s, routing %s, duplicate %d\n",
		run.Model, run.GPUs, run.GPU, run.Precision, run.Stack, run.Seq, run.Batch, run.MicroBatch, run.TP, run.PP, run.VP, run.EP, run.Recompute, run.Routing, run.Duplicate)
	fmt.Fprintf(w, "  %.0f tokens/s per GPU by the formula, %.0f with what published rows say, 80 %% interval %.0f-%.0f; by the formula %.0f tokens/s in total, %.4g s per step\n",
		b.Tokens, r.Range.P50, r.Range.P10, r.Range.P90, b.Tokens*float64(run.GPUs), b.Step)
	fmt.Fprintf(w, "  %.0f model TFLOP/s per GPU (%.1f GFLOPs per token: %s), MFU %.1f %% and HFU %.1f %% of the dense BF16 peak\n", b.TFLOPS, b.FLOPs/1e9, b.Convention, 100*b.MFU, 100*b.HFU)
	m := b.Memory
	fmt.Fprintf(w, "  memory %.0f GB per GPU: weights %.0f, gradients %.0f, optimizer %.0f, activations %.0f, reserve %.0f\n", m.Total(), m.Weights, m.Gradients, m.Optimizer, m.Activations, m.Reserve)
	x := b.AllToAll
	fmt.Fprintf(w, "  exchange: %d all-to-alls per layer of %.1f MB per rank and %.2f ms, %.3f ms per token in total, %.0f %% hidden\n",
		x.Operations, x.Bytes*float64(run.MicroBatch*run.Seq)/float64(run.TP)/1e6, x.Each/float64(run.TP), x.Total, 100*x.Hidden)
	fmt.Fprintf(w, "\n  %-6s %-18s %9s %7s  %s\n", "term", "", "ms/token", "share", "rests on")
	for _, t := range b.Terms {
		fmt.Fprintf(w, "  %-6s %-18s %9.4f %6.1f%%  %s\n", t.Symbol, t.Symbol.About(), t.MS, 100*t.MS/b.MS, t.Kind)
		if explain {
			fmt.Fprintf(w, "         %s\n         source: %s\n", t.Formula, t.Source)
		}
	}
	fmt.Fprintf(w, "  %-6s %-18s %9.4f\n", "sum", "", b.MS)
	for _, e := range b.Extrapolated {
		fmt.Fprintf(w, "  extrapolated: %s\n", e)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  %s\n", n)
	}
	if explain {
		fmt.Fprintf(w, "\n  one parameter at a time, tokens/s of the DeepEP scenario at both ends of its prior:\n")
		for _, s := range r.Swings {
			fmt.Fprintf(w, "  %-20s %8.4g .. %-8.4g %6.0f .. %-6.0f %s: %s\n", s.Name, s.Low, s.High, s.AtLow, s.AtHigh, s.Kind, s.About)
		}
	}
}
