package running

// How train shows its progress: log lines with a view below them on a terminal, log lines
// otherwise.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// DisplayFlags choose between the view, log lines and JSON.
type DisplayFlags struct {
	Format string
	Plain  bool
	Color  string
}

// Display shows the progress of a run.
type Display struct {
	events.Reporter
	Env   cli.Env  // its writers go through the display
	Ranks []string // flags to pass to rank processes

	Follow func(run string, steps int) // must be called when the run begins
	Close  func()                      // must be called when the run ends
}

// Open returns the display of a run, for a rank or for its launcher.
func (f *DisplayFlags) Open(env cli.Env, ranks RankFlags) Display {
	out := &logWriter{to: env.LeaderOnly().Out}
	d := Display{Env: env, Follow: func(string, int) {}, Close: func() {}}
	style := report.Style(f.Color == "always" || f.Color == "auto" && os.Getenv("NO_COLOR") == "" && isScreen(env.Out))
	switch {
	case f.Format == "json":
		d.Reporter = report.JSON{W: out}
	case f.Plain || ranks.Tag || env.Member != nil || !isScreen(env.Out):
		d.Reporter = report.Console{W: out, Style: style}
	default:
		view := report.NewView(out, func() int { return system.TerminalWidth(env.Out) }, style)
		d.Reporter, d.Env.Out = report.Console{W: view, Style: style}, view
		d.Follow, d.Close = view.Follow, func() { view.Close() }
		if style {
			d.Ranks = []string{"--color", "always"}
		}
		if isScreen(env.ErrOut) {
			d.Env.ErrOut = view
		}
	}
	if ranks.Tag && env.Member == nil {
		d.Env.Out = out // of all ranks
	}
	return d
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

// Next prints what to do with a run that is complete.
func (f *DisplayFlags) Next(out io.Writer, folder string) {
	if f.Format == "json" {
		return
	}
	fmt.Fprintln(out, "next:")
	path := filepath.Join(folder, page.File)
	if _, err := os.Stat(path); err == nil {
		fmt.Fprintf(out, "  report: %s\n", path)
	}
	generate, export := report.Commands(folder)
	fmt.Fprintf(out, "  text:   %s\n  export: %s\n", generate, export)
}

// isScreen reports whether w is a terminal that can move its cursor.
func isScreen(w io.Writer) bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb" && system.TerminalWidth(w) > 0
}
