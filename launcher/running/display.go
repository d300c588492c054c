package running

// How train shows its progress: log lines, for people or as JSON.

import (
	"encoding/json"
	"fmt"
	"io"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// DisplayFlags choose between log lines and JSON.
type DisplayFlags struct {
	Format string
}

// Open returns what shows the progress of a run, for a rank or for its launcher, and the
// environment to run it in.
func (f *DisplayFlags) Open(env cli.Env) events.Reporter {
	out := &logWriter{to: env.LeaderOnly().Out}
	if f.Format == "json" {
		return report.JSON{W: out}
	}
	return report.Console{W: out}
}

// Complete says that nothing is left to do of a run.
func (f *DisplayFlags) Complete(out io.Writer, end record.Done, cfg config.Config) {
	if f.Format == "json" {
		line, _ := json.Marshal(map[string]any{"event": "complete", "step": end.Step, "steps": cfg.Steps, "last_held_out_loss": cli.Finite(float64(end.HeldOut)), "out": cfg.Out})
		fmt.Fprintf(out, "%s\n", line)
		return
	}
	fmt.Fprintf(out, "%s is complete: %d of %s, validation loss %.4f nats; to train on: launcher train --resume --out %s --steps N --set schedule_steps=%d, with N above %d\n",
		cfg.Out, end.Step, report.Plural(cfg.Steps, "step"), float64(end.HeldOut), report.Shell(cfg.Out), cfg.PlannedSteps(), cfg.Steps)
}
