package main

// bench train: the idle time of a pipeline.

import (
	"fmt"
	"io"
)

// printPipeline prints the idle time of the last turn and the times of actions.
func printPipeline(w io.Writer, t samples) {
	p := t.last.Pipeline
	if p == nil {
		return
	}
	fmt.Fprintf(w, "\n%s: %s: idle %.2f%% of the ranks' time, %.2f%% by the schedule and the mean times below (ratio %.3f), %.2f%% with the time of each action (ratio %.3f)\n",
		t.precision, p.Title, 100*p.Idle, 100*p.Predicted, p.Idle/p.Predicted, 100*p.Exact, p.Idle/p.Exact)
	fmt.Fprintf(w, "%-20s", "ms per action")
	for _, kind := range p.Kinds {
		fmt.Fprintf(w, " %9s", kind)
	}
	fmt.Fprintln(w)
	for stage, times := range p.Times {
		fmt.Fprintf(w, "stage %-14d", stage)
		for _, seconds := range times {
			cell := "-"
			if seconds > 0 {
				cell = fmt.Sprintf("%.2f", 1e3*seconds)
			}
			fmt.Fprintf(w, " %9s", cell)
		}
		fmt.Fprintln(w)
	}
}
