package main

// How train shows its progress: a live view on a terminal, log lines otherwise.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// displayFlags choose between the live view, log lines and JSON.
type displayFlags struct {
	format string
	plain  bool
	color  string
	relay  bool
}

// display shows the progress of a run.
type display struct {
	trainer.Reporter
	env   env // its writers go through the display
	log   *logWriter
	ranks []string // flags to pass to rank processes
	close func()   // must be called when the run ends
}

// open returns the display of a run, for a rank or for its launcher.
func (f *displayFlags) open(env env, ranks rankFlags) (display, error) {
	out := &logWriter{to: env.leaderOnly().out}
	d := display{env: env, log: out, close: func() {}}
	if !slices.Contains(flagChoices("", "color"), f.color) {
		return d, fmt.Errorf("--color is %q: use auto, always or never", f.color)
	}
	style := report.Style(f.color == "always" || f.color == "auto" && os.Getenv("NO_COLOR") == "" && isScreen(env.out))
	switch {
	case f.relay && env.member != nil:
		d.Reporter = report.Relay(out)
	case f.format == "json":
		d.Reporter = report.JSON{W: out}
	case f.format != "text":
		return d, fmt.Errorf("--log-format is %q: use text or json", f.format)
	case f.plain || ranks.tag || env.member != nil || !isScreen(env.out):
		d.Reporter = report.Console{W: out, Width: system.TerminalWidth(env.out), Style: style}
	default:
		view := report.NewLive(out, func() (int, int) { return system.TerminalSize(env.out) }, style)
		d.Reporter, d.close, d.ranks = view, func() { view.Close() }, []string{"--relay"}
		d.env.out = view
		if ranks.kind == "process" {
			d.env.out = report.NewReceiver(view, view)
		}
		if isScreen(env.errOut) {
			d.env.errOut = view
		}
	}
	if ranks.tag && env.member == nil {
		d.env.out = out // of all ranks
	}
	return d, nil
}

// complete says that nothing is left to do of a run.
func (f *displayFlags) complete(out io.Writer, end record.Done, cfg trainer.Config) {
	if f.format == "json" {
		line, _ := json.Marshal(map[string]any{"event": "complete", "step": end.Step, "steps": cfg.Steps, "last_held_out_loss": finite(float64(end.HeldOut)), "out": cfg.Out})
		fmt.Fprintf(out, "%s\n", line)
		return
	}
	fmt.Fprintf(out, "%s is complete: %d of %s, validation loss %.4f nats; to train on: launcher train --resume --out %s --steps N, with N above %d\n",
		cfg.Out, end.Step, report.Plural(cfg.Steps, "step"), float64(end.HeldOut), report.Shell(cfg.Out), cfg.Steps)
}

// isScreen reports whether w is a terminal that can move its cursor.
func isScreen(w io.Writer) bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb" && system.TerminalWidth(w) > 0
}
