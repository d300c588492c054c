package main

// How train tells of its run: a live view on a terminal, lines otherwise.

import (
	"fmt"
	"io"
	"os"
	"slices"

	"spmoe/launcher/report"
	"spmoe/launcher/report/live"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// viewFlags say how.
type viewFlags struct {
	format string
	plain  bool
	color  string
	relay  bool
}

// telling is how a run is told of.
type telling struct {
	trainer.Reporter
	env   env      // of what else is printed meanwhile
	ranks []string // flags of ranks that are processes
	close func()   // to be called at the end, however the run ends
}

// tell returns how a run is told of, by a rank or by its launcher.
func (f *viewFlags) tell(env env, world worldFlags) (telling, error) {
	t := telling{env: env, close: func() {}}
	out := env.quiet().out
	if !slices.Contains(choices("", "color"), f.color) {
		return t, fmt.Errorf("--color is %q: use auto, always or never", f.color)
	}
	style := report.Style(f.color == "always" || f.color == "auto" && os.Getenv("NO_COLOR") == "" && isScreen(env.out))
	switch {
	case f.relay && env.member != nil:
		t.Reporter = &live.Sender{W: out}
	case f.format == "json":
		t.Reporter = report.JSON{W: out}
	case f.format != "text":
		return t, fmt.Errorf("--log-format is %q: use text or json", f.format)
	case f.plain || world.tag || env.member != nil || !isScreen(env.out):
		t.Reporter = report.Console{W: out, Width: system.TerminalWidth(env.out), Style: style}
	default:
		view := live.New(env.out, func() (int, int) { return system.TerminalSize(env.out) }, style)
		t.Reporter, t.close, t.ranks = view, func() { view.Close() }, []string{"--relay"}
		t.env.out = view.Log()
		if world.kind == "process" {
			t.env.out = &live.Receiver{To: view, Other: view.Log()}
		}
		if isScreen(env.errOut) {
			t.env.errOut = view.Log()
		}
	}
	return t, nil
}

// isScreen says whether w is a terminal that can move its cursor.
func isScreen(w io.Writer) bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb" && system.TerminalWidth(w) > 0
}
