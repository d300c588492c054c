package running

// What train says when it is stopped before its state could be saved.

import (
	"context"
	"fmt"
	"io"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
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

// HandleStop ends train at once if it is asked to stop, until prepared is called: from then on the
// ranks stop it. It also sets the last words of train.
func HandleStop(ctx context.Context, shown Display, env cli.Env, folder string, ranks int) (prepared func() bool) {
	if env.Member != nil { // the ranks stop together
		SetLastWords(ctx, nil)
		return func() bool { return true }
	}
	SetLastWords(ctx, func() {
		shown.Close()
		fmt.Fprintf(env.ErrOut, "launcher: stopped at once, nothing was saved: %s\n", resumeHint(folder, ranks))
	})
	return context.AfterFunc(ctx, func() {
		exitNow(ctx, func() { PrintNotBegun(env.ErrOut, folder, ranks) })
	})
}

// PrintNotBegun says that a run was stopped before its first step.
func PrintNotBegun(errOut io.Writer, folder string, ranks int) {
	fmt.Fprintf(errOut, "launcher: stopped before the first step, there was nothing to save: %s\n", resumeHint(folder, ranks))
}
