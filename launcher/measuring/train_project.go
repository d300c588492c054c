package measuring

// train --project: a projection of the 671B model onto 256 GPUs with the routing of a finished run.

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/launcher/cli"
	"spmoe/launcher/trainer/config"
)

// CheckProjection returns an error before the run if train --project could not work after it.
func CheckProjection(gpu string, cfg config.Config) error {
	if gpu == "" {
		return nil
	}
	if cfg.Model.MoELayers() == 0 {
		return errors.New("--project uses the run's routing, but the model has no experts: leave it out")
	}
	run := projection.Target()
	run.GPU, run.Exchange = gpu, "dedup"
	if _, err := projection.Project(run); err != nil {
		return fmt.Errorf("--project: 671B on 256 GPUs: %w", err)
	}
	return nil
}

// ProjectRun prints the projection of the headline's recipe with the routing of the run in out.
func ProjectRun(w io.Writer, gpu, out string) error {
	path := filepath.Join(out, ratios.Name)
	file, err := OpenRatios(path)
	if err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	f := projectFlags{run: projection.Target()}
	f.run.GPU, f.run.Routing, f.run.Exchange = gpu, projection.FromRun, "dedup"
	if f.run.Ratios, err = projection.FromRatios(file, f.run.EP); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	r, err := f.compute(&file)
	if err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	fmt.Fprintf(w, "\nprojected with this run's routing (%s):\n", path)
	printBudget(w, r, false)
	if err := r.WriteNumbers(out); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	return nil
}
