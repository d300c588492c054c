package main

// What train says when it is stopped before its state could be saved.

import (
	"context"
	"fmt"
	"io"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/report"
)

// resumeHint says from where a stopped run continues.
func resumeHint(folder string, ranks int) string {
	path, err := checkpoint.Latest(folder)
	if err != nil {
		return "there is no checkpoint yet; the same command starts again"
	}
	return fmt.Sprintf("the newest checkpoint is %s; to continue from it: launcher -np %d train --resume --out %s", path, ranks, report.Shell(folder))
}

// announceStop says at once that train will stop, until cancel is called: from then on the ranks
// say it. It also sets the last words of train.
func announceStop(ctx context.Context, shown display, errOut io.Writer, folder string, ranks int) (cancel func() bool) {
	setLastWords(ctx, func() {
		shown.close()
		fmt.Fprintf(errOut, "launcher: stopped at once, nothing was saved: %s\n", resumeHint(folder, ranks))
	})
	return context.AfterFunc(ctx, func() {
		fmt.Fprintf(errOut, "launcher: stopping as soon as the run is prepared; Ctrl-C again to stop now\n")
	})
}

// printNotBegun says that a run was stopped before its first step.
func printNotBegun(errOut io.Writer, folder string, ranks int) {
	fmt.Fprintf(errOut, "launcher: stopped before the first step, there was nothing to save: %s\n", resumeHint(folder, ranks))
}
