package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
)

// A comparison of ranks that are processes survives that all of it is killed, and comes to what
// goroutines come to.
func TestCompareProcessesKilled(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := comparing(data, "--np", "2", "--seeds", "1", "--precision", "bf16,mxfp8", "--steps", "40")
	launch(append(args, "--out", "straight")...)
	want := result(t, "straight")

	processes := append(args, "--ranks", "process", "--save-every", "10", "--out", "killed")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, processes...)
	cmd.Env = append(os.Environ(), asLauncher+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if saved, _ := filepath.Glob("killed/bf16/seed-1/step-*"); len(saved) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no checkpoint")
		}
		time.Sleep(2 * time.Millisecond) // the ranks need the processor
	}
	cmd.Process.Kill()
	cmd.Wait()

	got := launch(processes...)
	if !strings.Contains(got.out, ", seed 1: resumes after step ") || !strings.Contains(got.out, "[2/2]") {
		t.Fatalf("exit code %d, errors %q, output\n%s", got.code, got.errOut, got.out)
	}
	if r := result(t, "killed"); !reflect.DeepEqual(r, want) {
		t.Errorf("killed %+v\nleft alone %+v", r, want)
	}
	if log, err := os.ReadFile("killed/mxfp8/seed-1/ranks.log"); err != nil || !strings.Contains(string(log), "2 ranks are processes") {
		t.Errorf("the ranks' own words: %q, %v", log, err)
	}
}

// When a rank of a run fails, the comparison ends with its words and says how to go on.
func TestCompareProcessFails(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	args := comparing(data, "--np", "2", "--ranks", "process", "--heap-mib", "1", "--out", "run")
	got := launch(args...)
	for _, want := range []string{"bf16, seed 1", "rank", "to continue: launcher compare"} {
		if got.code != cli.ExitFailed || !strings.Contains(got.errOut, want) {
			t.Errorf("exit code %d, errors %q, want %q in them", got.code, got.errOut, want)
		}
	}
}
