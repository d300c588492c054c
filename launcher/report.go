package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"spmoe/launcher/report/metricscsv"
	"spmoe/launcher/report/overview"
	"spmoe/launcher/report/tensorboard"
)

func defineReport(*flag.FlagSet) action { return writeReport }

// writeReport writes the report, plots, metrics.csv and TensorBoard events of runs again.
func writeReport(_ context.Context, env env) error {
	runs := env.args
	if len(runs) == 0 {
		run, err := newestRun("give its folder, as in launcher report RUN")
		if err != nil {
			return err
		}
		runs = []string{run}
	}
	for _, run := range runs {
		r, err := overview.Read(run)
		if err != nil {
			return err
		}
		events, rows := tensorboard.Open(run, false, func() string { return r.Config }), metricscsv.Open(run)
		if err := errors.Join(events.Update(), events.Close(), rows.Update(), rows.Close(), overview.Write(run)); err != nil {
			return failure{err, exitFailed}
		}
		fmt.Fprintf(env.out, "%s\n", filepath.Join(run, overview.File))
	}
	return nil
}
