package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
)

// comparing is the command line of a comparison whose runs take milliseconds.
func comparing(data string, more ...string) []string {
	rare := strings.Fields("--save-every 0 --set sample_tokens=0 --eval-every 0 --optimizer.lr 3e-3")
	return slices.Concat([]string{"compare", "--np", "1"}, tinyRun(data), rare, more)
}

// The exit code is the verdict, for scripts, and the numbers are there either way.
func TestCompareVerdicts(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args    string
		code    int
		verdict string
	}{
		{"--precision bf16,bf16+null,bf16+standard --seeds 2 --jobs 2 --margin 20", cli.ExitOK, "bf16+standard is EQUIVALENT to bf16 within 20 %"},
		{"--precision bf16,bf16+optimizer.weight-decay=1e30 --seeds 1", cli.ExitFailed, "bf16+optimizer.weight-decay=1e30 is DIFFERENT"},
		{"--set optimizer.weight_decay=1e30 --precision bf16,bf16+optimizer.weight-decay=0.1 --seeds 1", cli.ExitUndecided, "bf16 has diverged with seed 1"},
	} {
		got := launch(comparing(data, strings.Fields(c.args)...)...)
		if got.code != c.code || got.errOut != "" || !strings.Contains(got.out, c.verdict) || !strings.Contains(got.out, "plan, written before the first run: ") {
			t.Errorf("%s: exit code %d, want %d; errors %q, output\n%s", c.args, got.code, c.code, got.errOut, got.out)
		}
		_, path, _ := strings.Cut(got.out, "numbers: ")
		for _, name := range []string{"result.json", "plan.toml"} {
			if info, err := os.Stat(filepath.Join(filepath.Dir(strings.TrimSpace(path)), name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", c.args, err)
			}
		}
	}
	if plan, err := os.ReadFile("runs/compare-2/plan.toml"); err != nil || !strings.Contains(string(plan), "arms = ['bf16', 'bf16+optimizer.weight-decay=1e30', 'bf16+null']") {
		t.Errorf("each comparison has a folder of its own: %v\n%s", err, plan)
	}
}

// A signal ends the comparison at a step boundary, and the command that is printed finishes it.
func TestCompareInterrupt(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := launchTo(ctx, &watcher{[]string{"[1/3] "}, cancel}, comparing(data, "--precision", "bf16,mxfp8", "--seeds", "1")...)
	if got.code != cli.ExitInterrupted || got.errOut != "" || strings.Contains(got.out, "[2/3]") {
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
	if strings.Count(rest.out, "(from an earlier command)") != 1 || !strings.Contains(rest.out, "numbers: runs/compare-1/result.json") {
		t.Errorf("the rest:\n%s%s", rest.out, rest.errOut)
	}
}

// A comparison takes its configuration from a file, over its own defaults and under flags.
func TestCompareConfig(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	file := write(t, filepath.Join(t.TempDir(), "c.toml"), "precision = \"fp32,bf16\"\nsteps = 40\nseed = 7\n[optimizer]\nwarmup = 3\n")
	for _, c := range []struct{ args, want string }{
		{"--config " + file, "fp32 against 3, 10 seeds from 7, 40 steps, 3 of warm-up, width 256"},
		{"--quick --steps 100 --precision bf16,mxint8 --config " + file, "bf16 against 3, 3 seeds from 7, 100 steps, 3 of warm-up, width 128"},
		{"--seeds 4", "bf16 against 3, 4 seeds from 1, 1500 steps, 75 of warm-up, width 256"},
	} {
		f := &checking.CompareFlags{}
		fs, _ := cli.Command{Define: f.Define}.Flags()
		if _, err := cli.Parse(fs, append(strings.Fields(c.args), "--data", data)); err != nil {
			t.Fatal(err)
		}
		r, err := f.Comparison(*f.Given, &running.RunClaim{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := r.Config
		if got := fmt.Sprintf("%s against %d, %d seeds from %d, %d steps, %d of warm-up, width %d", r.Arms[0].Name, len(r.Arms), r.Seeds, cfg.Seed,
			cfg.Steps, cfg.Optimizer.Warmup, cfg.Model.Dim); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}
