package main

// What train says when it is stopped before its state could be saved.

import (
	"context"
	"fmt"
	"io"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/report"
)

// resumeHint says from where a stopped run continues. folder is empty if it is not known yet.
func resumeHint(folder string, ranks int) string {
	if folder == "" {
		return "the run has not begun"
	}
	path, err := checkpoint.Latest(folder)
	if err != nil {
		return "there is no checkpoint yet; the same command starts again"
	}
	return fmt.Sprintf("the newest checkpoint is %s; to continue from it: launcher -np %d train --resume --out %s", path, ranks, report.Shell(folder))
}

// handleStop ends train at once if it is asked to stop, until prepared is called: from then on the
// ranks stop it. It also sets the last words of train.
func handleStop(ctx context.Context, shown display, env env, folder string, ranks int) (prepared func() bool) {
	if env.member != nil { // the ranks stop together
		setLastWords(ctx, nil)
		return func() bool { return true }
	}
	setLastWords(ctx, func() {
		shown.close()
		fmt.Fprintf(env.errOut, "launcher: stopped at once, nothing was saved: %s\n", resumeHint(folder, ranks))
	})
	return context.AfterFunc(ctx, func() {
		exitNow(ctx, func() { printNotBegun(env.errOut, folder, ranks) })
	})
}

// printNotBegun says that a run was stopped before its first step.
func printNotBegun(errOut io.Writer, folder string, ranks int) {
	fmt.Fprintf(errOut, "launcher: stopped before the first step, there was nothing to save: %s\n", resumeHint(folder, ranks))
}
