package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/chaos"
	"spmoe/launcher/checking"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
)

// Each subcommand of chaos, shortened: whatever fails, the bits are those of an undisturbed run,
// and no process or file is left.
func TestChaos(t *testing.T) {
	stages := strings.Fields("--model.layers 4 --batch 8 --micro-batch 1 --pp 2 --pp-schedule ZBVZeroBubble")
	references := chaos.References{}
	for name, c := range map[string]struct {
		mode   string
		config chaos.Config
		faults int
	}{
		"one of each kind":         {"mix", chaos.Config{Ranks: 4, Every: time.Millisecond, For: 16 * time.Millisecond}, 16},
		"points":                   {"points", chaos.Config{Count: 1, Action: "kill"}, 1},
		"too early an end":         {"points", chaos.Config{Count: 1, Action: "exit0", At: "park/before"}, 1},
		"panics in checkpoints":    {"points", chaos.Config{Count: 1, Action: "panic", At: "checkpoint/"}, 1},
		"stopped when all is done": {"points", chaos.Config{Count: 1, Action: "stop", At: "leave/"}, 1},
		"launchers":                {"launcher", chaos.Config{Count: 1}, 1},
		"bits":                     {"bits", chaos.Config{Count: 2}, 2},
		"damaged files":            {"files", chaos.Config{Count: 1}, 1},
		"nothing":                  {"quiet", chaos.Config{For: 500 * time.Millisecond}, 0},
		"stages, kills":            {"kill", chaos.Config{Count: 1, Model: stages}, 1},
		"shared products, kills":   {"kill", chaos.Config{Count: 1, Model: strings.Fields("--tp 2 --seq 64")}, 1},
		"stages, stops":            {"stop", chaos.Config{Count: 1, Model: stages}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			var out bytes.Buffer
			c.config.Ranks, c.config.Spares, c.config.Seed = max(2, c.config.Ranks), 1, uint64(time.Now().UnixNano())
			c.config.References = references
			c.config.Model = append(slices.Clip(tinyModel), c.config.Model...)
			c.config.Out, c.config.Launch, c.config.Program = &out, checking.LaunchTrain, testProgram
			modes := chaos.Modes()
			mode := modes[slices.IndexFunc(modes, func(m chaos.Mode) bool { return m.Name == c.mode })]
			ok, err := c.config.Run(t.Context(), mode)
			want := fmt.Sprintf("%s: all faults handled", report.Plural(c.faults, "fault"))
			if err != nil || !ok || !strings.Contains(out.String(), want) {
				t.Fatalf("%v, expected %q\n%s", err, want, out.String())
			}
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "chaos-*")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// testProgram is this test program as a launcher.
func testProgram(args []string) *exec.Cmd {
	cmd := checking.OwnProgram(args)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	return cmd
}

// The environment alone makes no rank fail.
func TestFaultsAreTheLaunchers(t *testing.T) {
	t.Setenv(fault.Variable, fault.Setting(&fault.Order{Action: fault.Kill, Place: fault.BeforeJoin, Count: 1}, ""))
	out := filepath.Join(t.TempDir(), "run")
	got := launch(processRun(out, "--steps", "2", "--restarts", "0", "--data", text(t))...)
	if got.code != cli.ExitOK {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
}

func TestChaosUsage(t *testing.T) {
	for want, args := range map[string]string{
		`chaos "everything": use one of points`: "chaos everything",
		"-np is 0":                              "chaos -np 0",
		"--spares is -1":                        "chaos --spares -1",
		"--count must not be negative":          "chaos kill --count -1",
		"--every and --for must be positive":    "chaos --every 0s",
		`--action is "burn"`:                    "chaos points --action burn",
	} {
		refuse(t, cli.ExitUsage, strings.Fields(args), want)
	}
}
