package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/convergence"
	"spmoe/launcher/running"
)

// comparing is the command line of a comparison whose runs take milliseconds. They save at their
// end only.
func comparing(data string, more ...string) []string {
	rare := strings.Fields("--save-every 0 --sample-tokens 0 --record-every 100 --eval-every 0")
	return slices.Concat([]string{"compare", "--np", "1", "--optimizer.lr", "3e-3"}, tinyRun(data), rare, more)
}

// result reads the result of a comparison, without folders, speeds and what has brought it about.
func result(t *testing.T, dir string) convergence.Result {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r convergence.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	r.Command, r.Setup.Config, r.Setup.Jobs, r.Plan = "", "", 0, ""
	for i := range r.Arms {
		a := &r.Arms[i]
		a.Speed, a.Times = 0, nil
		for j := range a.Runs {
			a.Runs[j].Speed, a.Runs[j].Folder = 0, ""
		}
	}
	return r
}

// The exit code is the verdict, for scripts, and the report is there either way.
func TestCompareVerdicts(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args    []string
		code    int
		verdict string
	}{
		{[]string{"--precision", "bf16,bf16+standard", "--seeds", "2", "--jobs", "2"}, cli.ExitOK, "2 seeds: EQUIVALENT"},
		{[]string{"--vary", "optimizer.weight-decay=0.1,1e30", "--seeds", "1"}, cli.ExitFailed, "1 seed: DIFFERENT"},
		{[]string{"--vary", "optimizer.weight-decay=1e30,0.1", "--seeds", "2"}, cli.ExitUndecided, "weight-decay=1e30 has diverged"},
	} {
		got := launch(comparing(data, c.args...)...)
		if got.code != c.code || got.errOut != "" || !strings.Contains(got.out, c.verdict) {
			t.Errorf("%q: exit code %d, want %d; errors %q, output\n%s", c.args, got.code, c.code, got.errOut, got.out)
		}
		_, out, _ := strings.Cut(got.out, "report: ")
		for _, name := range []string{"", "result.json", "forest.png", "plan.toml"} {
			path := strings.TrimSpace(out)
			if name != "" {
				path = filepath.Join(filepath.Dir(path), name)
			}
			if info, err := os.Stat(path); err != nil || info.Size() == 0 {
				t.Errorf("%q: %v", c.args, err)
			}
		}
	}
	if _, err := os.Stat("runs/compare-3/result.json"); err != nil {
		t.Errorf("each comparison has a folder of its own: %v", err)
	}
}

// A signal ends the comparison at a step boundary, and the command that is printed finishes it.
func TestCompareInterrupt(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := launchTo(ctx, &watcher{[]string{"[1/2] "}, cancel}, comparing(data, "--precision", "bf16,mxfp8", "--seeds", "1")...)
	if got.code != cli.ExitInterrupted || got.errOut != "" || strings.Contains(got.out, "[2/2]") {
		t.Fatalf("exit code %d, errors %q, output\n%s", got.code, got.errOut, got.out)
	}
	_, command, found := strings.Cut(got.out, "interrupted; to continue: launcher ")
	if !found {
		t.Fatalf("no command to continue with:\n%s", got.out)
	}
	again, err := exec.Command("sh", "-c", `for word in `+strings.TrimSpace(command)+`; do printf '%s\n' "$word"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	rest := launch(strings.Split(strings.TrimSuffix(string(again), "\n"), "\n")...)
	if strings.Count(rest.out, "(from an earlier command)") != 1 || !strings.Contains(rest.out, "report: runs/compare-1/report.html") {
		t.Errorf("the rest:\n%s%s", rest.out, rest.errOut)
	}
}

// A comparison with a pilot trains the seeds that its chance needs. Continued, it comes to the same
// number.
func TestComparePower(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := comparing(data, "--precision", "bf16,mxfp8", "--power", "0.8", "--margin", "20", "--pilot", "2", "--out", "power")
	first := launch(args...)
	for _, want := range []string{"pilot: 2 seeds", "pairs scatter by", "chance to show equivalence within 20 %", "2 seeds: EQUIVALENT"} {
		if first.code != cli.ExitOK || !strings.Contains(first.out, want) {
			t.Errorf("exit code %d, errors %q, no %q in\n%s", first.code, first.errOut, want, first.out)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := launchTo(ctx, &watcher{[]string{"bf16, seed 1: "}, cancel}, args...)
	reused := strings.Count(again.out, "(from an earlier command)")
	if again.code != cli.ExitInterrupted || reused != 5 || !strings.Contains(again.out, " 4 runs, 2 seeds") {
		t.Errorf("again: exit code %d\n%s%s", again.code, again.out, again.errOut)
	}
}

// A comparison that is stopped after a look leaves its result.
func TestCompareLooks(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := comparing(data, "--precision", "bf16,bf16+standard,mxfp8", "--until-decided", "--max-seeds", "6", "--margin", "0.001", "--out", "looks")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var printed strings.Builder
	got := launchTo(ctx, writerFunc(func(b []byte) {
		if printed.Write(b); strings.Contains(printed.String(), "look 1 of 2, after 5 seeds: mxfp8 undecided") {
			cancel()
		}
	}), append(args, "--optimizer.lr", "1e-2")...)
	if got.code != cli.ExitInterrupted || !strings.Contains(got.out, "up to 18 runs, 6 seeds") {
		t.Fatalf("exit code %d: %s\n%s", got.code, got.errOut, got.out)
	}
	r := result(t, "looks")
	if len(r.Setup.Seeds) != 5 || r.Arms[1].Verdict != convergence.Equivalent || r.Arms[2].Verdict != convergence.Undecided {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat("looks/report.html"); err != nil {
		t.Error(err)
	}
}

// Finished comparisons of several sizes give a trend; those of one size do not.
func TestCompareSizes(t *testing.T) {
	folder := func(parameters string) string {
		text, err := os.ReadFile("../bench/results/convergence/debug-20-seeds/result.json")
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.Replace(string(text), `"parameters": 6273536`, `"parameters": `+parameters, 1))
		return filepath.Dir(write(t, filepath.Join(t.TempDir(), "result.json"), string(text)))
	}
	out := succeed(t, "compare", "--sizes", folder("1000000")+","+folder("10000000"))
	if !strings.Contains(out, "mxfp8-experts against bf16") || strings.Count(out, "trend per factor of ten in parameters: +0.000 %") != 6 {
		t.Errorf("%s", out)
	}
	refuse(t, cli.ExitUsage, []string{"compare", "--sizes", folder("1") + "," + folder("1")}, "two sizes")
}

// What a design can be expected to show is printed without a trace on the disk.
func TestCompareSimulate(t *testing.T) {
	t.Chdir(t.TempDir())
	out := succeed(t, "compare", "--simulate", "200", "--max-seeds", "10")
	for _, want := range []string{"200 simulated studies per row", "looks after 6 8 10 seeds", "none (different: type-I error)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	same(t, files(t, "."), nil)
}

// Mistakes end with code 2, a message that helps, and no trace on the disk.
func TestCompareUsage(t *testing.T) {
	data := text(t)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"one precision":      {[]string{"--precision", "mxfp8"}, []string{"--precision", `"mxfp8"`, "bf16,mxfp8"}},
		"unknown precision":  {[]string{"--precision", "bf16,fp8"}, []string{`"fp8"`, "mxfp8", "e5m2"}},
		"unknown modifier":   {[]string{"--precision", "bf16,mxfp8+e4m3"}, []string{`"e4m3"`, "e5m2, floor, ceil, even, wire, standard"}},
		"twice":              {[]string{"--precision", "bf16,bf16"}, []string{"bf16 is given twice"}},
		"seeds":              {[]string{"--seeds", "-1"}, []string{"--seeds is -1"}},
		"seeds, no number":   {[]string{"--seeds", "few"}, []string{"seeds", `"few"`}},
		"two ways":           {[]string{"--seeds", "3", "--power", "0.8"}, []string{"give one of them"}},
		"power":              {[]string{"--power", "80"}, []string{"--power is 80", "0.8"}},
		"max seeds":          {[]string{"--max-seeds", "1"}, []string{"--max-seeds is 1"}},
		"pilot of one":       {[]string{"--pilot", "1"}, []string{"--pilot is 1"}},
		"pilot of nothing":   {[]string{"--pilot", "none"}, []string{"--pilot", "none"}},
		"pilot elsewhere":    {[]string{"--pilot", "3", "--out", data}, []string{"holds no comparison"}},
		"sizes":              {[]string{"--sizes", "none"}, []string{"--sizes", "none"}},
		"simulate":           {[]string{"--simulate", "-1"}, []string{"--simulate is -1"}},
		"simulate what":      {[]string{"--simulate", "10"}, []string{"--pilot FOLDER"}},
		"margin":             {[]string{"--margin", "-1"}, []string{"--margin is -1", "percent"}},
		"margin, no number":  {[]string{"--margin", "NaN"}, []string{"--margin is NaN"}},
		"jobs":               {[]string{"--jobs", "0"}, []string{"--jobs is 0"}},
		"no record":          {[]string{"--record-every", "0"}, []string{"record_every is 0"}},
		"ranks":              {[]string{"-np", "3"}, []string{"-np 3", "1, 2 or 4"}},
		"kind of ranks":      {[]string{"--ranks", "thread"}, []string{"--ranks", "goroutine or process"}},
		"tagged output":      {[]string{"--ranks", "process", "--tag-output"}, []string{"--tag-output"}},
		"wire and standard":  {[]string{"--ep-exchange", "standard", "--precision", "bf16,mxfp8+wire"}, []string{"mxfp8+wire", "ep_exchange onesided"}},
		"unknown flag":       {[]string{"--sedes", "3"}, []string{"did you mean --seed?", "launcher help compare"}},
		"no data":            {[]string{"--data", "none"}, []string{"none", "no such file"}},
		"no config":          {[]string{"--config", "none.toml"}, []string{"--config", "none.toml"}},
		"model":              {[]string{"--model.top-k", "9"}, []string{"model.top_k is 9"}},
		"folder of another":  {[]string{"--out", data}, []string{"holds no comparison"}},
		"folder is a file":   {[]string{"--out", filepath.Join(data, "0.txt")}, []string{"0.txt"}},
		"seed of the seeds":  {[]string{"--seed", "-1"}, []string{"seed"}},
		"several words":      {[]string{"--data", data, "--quick", "yes"}, []string{"yes"}},
		"flavor beyond hope": {[]string{"--flavor", "17B"}, []string{`"17B"`, "debug"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refuse(t, cli.ExitUsage, comparing(data, append([]string{"--max-seeds", "4"}, c.args...)...), c.want...)
			same(t, files(t, "."), nil)
		})
	}
}

// The flags of the command are those of train and its own, and the configuration's defaults are a
// comparison's.
func TestCompareHelp(t *testing.T) {
	out := succeed(t, "help", "compare", "--all")
	for _, want := range []string{"--seeds N", "--margin PERCENT", "--precision LIST", "default bf16,mxfp8", "--steps N", "default 1500", "--model.layers N",
		"--ranks KIND"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A comparison takes its configuration from a file, over its own defaults and under flags.
func TestCompareConfig(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	file := write(t, filepath.Join(t.TempDir(), "c.toml"), "precision = \"fp32,bf16\"\nsteps = 40\nseed = 7\n[optimizer]\nwarmup = 3\n")
	for _, c := range []struct {
		args  []string
		check func(*convergence.Comparison) bool
	}{
		{[]string{"--config", file}, func(c *convergence.Comparison) bool {
			return c.Recipes[0].Name == "fp32" && c.Config.Steps == 40 && c.Config.Seed == 7 && c.Config.Optimizer.Warmup == 3 && c.Config.SaveEvery == 4 && c.Config.Model.Dim == 256
		}},
		{[]string{"--config", file, "--quick", "--steps", "100", "--precision", "bf16,mxint8"}, func(c *convergence.Comparison) bool {
			return c.Recipes[1].Name == "mxint8" && c.Config.Steps == 100 && c.Config.Optimizer.Warmup == 3 && c.Config.SaveEvery == 10 && c.Config.Model.Dim == 128
		}},
		{nil, func(c *convergence.Comparison) bool {
			return c.Config.Steps == 1500 && c.Config.Optimizer.Warmup == 75 && c.Config.Optimizer.LR == 1e-3 && c.Config.EvalSequences == 256 && c.Out == "runs/compare-1"
		}},
	} {
		f := &checking.CompareFlags{}
		fs, _ := cli.Command{Define: f.Define}.Flags()
		if _, err := cli.Parse(fs, append(c.args, "--data", data)); err != nil {
			t.Fatal(err)
		}
		got, err := f.Comparison(*f.Given, &running.RunClaim{})
		if err != nil || !c.check(got) {
			t.Errorf("%q: %v, %+v", c.args, err, got)
		}
	}
}
