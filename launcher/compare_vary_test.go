package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// A sweep compares every combination with the first one. It continues from what it has trained, and
// refuses to continue as another sweep.
func TestCompareVary(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := comparing(data, "--seeds", "1", "--out", "sweep", "--vary", "optimizer.clip-norm=1,0.01", "--vary", "model.top_k=2,1")
	at := slices.Index(args, "--model.top-k") // which is varied here
	sweep := slices.Concat(args[:at], args[at+2:])
	got := launch(sweep...)
	for _, want := range []string{"comparing bf16, optimizer.clip-norm=1,0.01, model.top-k=2,1: 4 runs", "[4/4] ", "clip-norm=0.01+top-k=1 against clip-norm=1+top-k=2", "lowest validation loss: "} {
		if got.errOut != "" || !strings.Contains(got.out, want) {
			t.Errorf("exit code %d, errors %q, no %q in\n%s", got.code, got.errOut, want, got.out)
		}
	}
	r := result(t, "sweep")
	if len(r.Arms) != 4 || r.Arms[3].About != "bf16, optimizer.clip-norm 0.01, model.top-k 1" || r.Arms[1].HeldOut.Mean == 0 {
		t.Errorf("%+v", r.Arms)
	}
	for name, want := range map[string]string{"plan.toml": "'model.top-k=2,1'", "report.html": "model.top-k=2,1"} {
		if text, err := os.ReadFile("sweep/" + name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if again := launchTo(stopped, io.Discard, sweep...); again.code != cli.ExitInterrupted {
		t.Errorf("again: exit code %d\n%s%s", again.code, again.out, again.errOut)
	}
	refuse(t, cli.ExitUsage, append(sweep[:len(sweep)-1:len(sweep)-1], "model.top-k=2,3"), "sweep holds a comparison in which", "top-k")
	refuse(t, cli.ExitUsage, args, "--model.top-k and --vary model.top-k=2,1 set the same")
}

// Mistakes in a sweep are found before its first run, also in values that only some arms have.
func TestCompareVaryUsage(t *testing.T) {
	data := text(t)
	for name, c := range map[string]struct{ vary, more, want string }{
		"no value":          {"optimizer.eps", "", "optimizer.lr=1e-3,3e-3"},
		"one value":         {"optimizer.eps=1e-8", "", "at least one other"},
		"unknown setting":   {"optimizer.epz=1,2", "", "did you mean --optimizer.eps"},
		"no number":         {"optimizer.eps=1e-8,small", "", "it must be a number"},
		"no such word":      {"optimizer.decay=linear,cosin", "", "cosine"},
		"not of a run":      {"seeds=1,2", "", "about the comparison"},
		"precision":         {"precision=bf16,mxfp8", "", "--precision, such as bf16,mxfp8"},
		"other text":        {"seq=32,64", "", "cannot be compared"},
		"steps":             {"steps=6,12", "", "one comparison per number of steps"},
		"a path":            {"pp-schedule=1F1B,a/b.json", "", "letters, digits"},
		"invalid in an arm": {"optimizer.beta2=0.9,1.5", "", "beta2=1.5, seed 1: "},
		"same value":        {"optimizer.eps=1e-8,0.00000001", "", "are the same run"},
		"of no effect":      {"mx.gradient=e4m3,e5m2", "", "are the same run"},
		"twice":             {"optimizer.eps=1,2", "--vary optimizer.eps=3,4", "in one list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refuse(t, cli.ExitUsage, comparing(data, append(strings.Fields(c.more), "--seeds", "2", "--vary", c.vary)...), c.want)
			same(t, files(t, "."), nil)
		})
	}
}
