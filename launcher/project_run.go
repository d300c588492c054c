package main

// train --project: the headline's recipe on 256 GPUs, with the routing of a run that has ended.

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/launcher/report/projected"
	"spmoe/launcher/trainer"
)

// checkProjection refuses what train --project cannot do, before the run.
func checkProjection(gpu string, cfg trainer.Config) error {
	if gpu == "" {
		return nil
	}
	if cfg.Model.MoELayers() == 0 {
		return errors.New("--project: the model has no experts, whose routing is what a projection takes from a run: leave it out")
	}
	run := projection.Target()
	run.GPU, run.Stack = gpu, "titan_deepep"
	if _, err := projection.Project(run, projection.Central()); err != nil {
		return fmt.Errorf("--project: 671B on 256 GPUs: %w", err)
	}
	return nil
}

// projectRun prints the headline's recipe on 256 GPUs with the routing of a run that has ended.
func projectRun(w io.Writer, gpu, out string) error {
	path := filepath.Join(out, ratios.Name)
	file, err := ratios.Open(path)
	if err != nil {
		return failure{err, exitFailed}
	}
	f := projectFlags{run: projection.Target(), samples: 1000, seed: 1}
	f.run.GPU, f.run.Routing, f.run.Stack = gpu, projection.FromRun, "titan_deepep"
	if f.run.Ratios, err = projection.FromRatios(file, f.run.EP); err != nil {
		return failure{err, exitFailed}
	}
	r, err := f.gather()
	if err == nil {
		err = f.note(&r, file)
	}
	if err != nil {
		return failure{err, exitFailed}
	}
	fmt.Fprintf(w, "\nprojected with this run's routing (%s), parameters of %s, SHA-256 %.12s:\n", path, r.Version, r.Hash)
	printBudget(w, r, false)
	if err := projected.WriteNumbers(out, r); err != nil {
		return failure{err, exitFailed}
	}
	return nil
}
