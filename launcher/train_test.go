package main

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/spmd"
	"spmoe/launcher/training"
)

// event is one line of the JSON log.
type event map[string]any

func (e event) number(name string) float64 {
	n, ok := e[name].(float64)
	if !ok {
		return math.NaN()
	}
	return n
}

// jsonEvents parses a JSON log and returns the events of a kind; all if kind is empty.
func jsonEvents(t *testing.T, log, kind string) []event {
	t.Helper()
	var all []event
	for line := range strings.Lines(log) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in line %q", err, line)
		}
		if kind == "" || e["event"] == kind {
			all = append(all, e)
		}
	}
	return all
}

// losses returns the training losses of a JSON log, by step.
func losses(t *testing.T, log string) map[int]float64 {
	t.Helper()
	all := map[int]float64{}
	for _, e := range jsonEvents(t, log, "step") {
		all[int(e.number("step"))] = e.number("loss")
	}
	return all
}

var jsonLog = []string{"--log-format", "json"}

// A run says what it does, learns, and leaves checkpoints and its configuration. The same command
// again is another run, and resuming means the newest one.
func TestTrainText(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	out := succeed(t, tiny(data, "-np", "2", "--steps", "60", "--optimizer.lr", "0.02", "--save-every", "40")...)

	// The names and the order of TorchTitan's log.
	line := regexp.MustCompile(`(?m)^step: +(\d+)  loss: +([\d.]+)  grad_norm: +[\d.]+  lr: [\d.e-]+  tps: [\d,]+  tflops: [\d.]+  mfu: [\d.]+%  memory: [\d.]+ [KMG]iB\([\d.]+%\)`)
	steps := line.FindAllStringSubmatch(out, -1)
	if len(steps) != 60 || steps[59][1] != "60" {
		t.Fatalf("%d step lines, want 60:\n%s", len(steps), out)
	}
	if first, last := steps[0][2], steps[59][2]; !(last < "4.0" && first > "5.0") {
		t.Errorf("the loss goes from %s to %s: it does not learn", first, last)
	}
	for _, want := range []string{
		"spmoe: debug, 45.38 K parameters", "2 ranks", "validation after step 0: loss", "validation after step 60: loss",
		"saved runs/debug-1/step-00000040", "saved runs/debug-1/step-00000060", "done: 60 steps", "training: loss", "sample, after \"// New returns \":\n  | ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the log lacks %q:\n%s", want, out)
		}
	}
	first := files(t, "runs/debug-1")
	for _, want := range []string{"config.toml", "step-00000040/manifest.json", "step-00000060/config.toml", "step-00000060/rank-00001-of-00002.safetensors"} {
		if _, ok := first[want]; !ok {
			t.Errorf("the run has no %s", want)
		}
	}
	if first["config.toml"] != first["step-00000060/config.toml"] {
		t.Error("the run's config.toml is not that of its last checkpoint")
	}
	if cfg := resolved(t, "--config", "runs/debug-1/config.toml"); cfg.Steps != 60 || cfg.Model.Dim != 32 || cfg.Out != "runs/debug-1" {
		t.Errorf("the saved configuration is %+v", cfg)
	}

	succeed(t, tiny(data, "--steps", "2")...)
	if _, ok := files(t, "runs")["debug-2/step-00000002/manifest.json"]; !ok {
		t.Error("the second run is not runs/debug-2")
	}
	if out := succeed(t, "train", "--resume", "--steps", "3"); !strings.Contains(out, "resuming runs/debug-2/step-00000002 at step 2") {
		t.Errorf("--resume does not continue the newest run:\n%s", out)
	}
	same(t, files(t, "runs/debug-1"), first)

	// A run that was renamed goes on in its new place.
	if err := os.Rename("runs/debug-2", "runs/renamed"); err != nil {
		t.Fatal(err)
	}
	out = succeed(t, "train", "--resume", "--steps", "4")
	if _, err := os.Stat("runs/debug-2"); !strings.Contains(out, "saved runs/renamed/step-00000004") || err == nil {
		t.Errorf("a renamed run goes on elsewhere:\n%s", out)
	}
}

// A run whose steps are skipped ends with the code that says not to start it again, and names them;
// what it has saved is whole. A run that ends without finite losses has failed.
func TestDiverged(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for _, ranks := range []string{"goroutine", "process"} {
		skips := ranks + "-skips"
		got := launch(tiny(data, "-np", "2", "--ranks", ranks, "--out", skips, "--steps", "20", "--optimizer.lr", "1e30", "--set", "optimizer.warmup=0", "--set", "guard.skips=2")...)
		if want := "were skipped, more than 2 of 100 (guard.skips)"; got.code != spmd.DoNotRestart || !strings.Contains(got.errOut, want) {
			t.Errorf("%s ranks: exit code %d, errors %q, want code %d and %q", ranks, got.code, got.errOut, spmd.DoNotRestart, want)
		}
		if n := strings.Count(got.out, "is skipped and changes no weight"); n != 3 {
			t.Errorf("%s ranks: %d alarms of 3 in\n%s", ranks, n, got.out)
		}
		verify(t, skips)

		got = launch(tiny(data, "-np", "2", "--ranks", ranks, "--optimizer.lr", "1e18", "--out", ranks)...)
		if got.code != cli.ExitFailed || !strings.Contains(got.errOut, "loss of NaN") || !strings.Contains(got.errOut, "lower --optimizer.lr") || strings.Count(got.errOut, "the run ended") != 1 {
			t.Errorf("%s: exit code %d, errors %q", ranks, got.code, got.errOut)
		}
		// Nothing is left to do, and that is no success.
		if again := launch("train", "--resume", "--out", ranks); again.code != cli.ExitFailed || !strings.Contains(again.out, "is complete") || !strings.Contains(again.errOut, "loss of NaN") {
			t.Errorf("%s, again: %+v", ranks, again)
		}
	}
}

// Every flag outside of the configuration is compared between ranks, or may differ.
func TestFlagsOfRanksAreCompared(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	f := new(training.TrainFlags)
	f.Define(fs)
	value := func(name string) string {
		for _, s := range f.Settings() {
			if s.Key == "--"+name {
				return s.Value
			}
		}
		return "not compared"
	}
	fs.VisitAll(func(of *flag.Flag) {
		if _, ok := of.Value.(*cli.Setting); ok || of.Name == "set" {
			return // package trainer compares the configuration
		}
		was := value(of.Name)
		if !slices.ContainsFunc([]string{"1", "1s", "process", "core", "json"}, func(v string) bool {
			return of.Value.Set(v) == nil
		}) {
			t.Fatalf("--%s: no value fits", of.Name)
		}
		if changed := value(of.Name) != was; changed == slices.Contains(training.MayDiffer, of.Name) {
			t.Errorf("--%s may differ: %t, and is compared: %t", of.Name, !changed, changed)
		}
	})
	for _, name := range training.MayDiffer {
		if fs.Lookup(name) == nil {
			t.Errorf("--%s may differ, but is no flag", name)
		}
	}
}
