package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// threeCheckpoints makes a run with checkpoints of steps 2, 4 and 6 by two ranks.
func threeCheckpoints(t *testing.T, more ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	data := text(t)
	succeed(t, tiny(data, append(more, "-np", "2", "--out", "run", "--save-every", "2", "--set", "keep=9")...)...)
}

// breakShard changes a byte in the middle of a file.
func breakShard(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	write(t, path, string(data))
}

func TestCheckpointList(t *testing.T) {
	threeCheckpoints(t)
	if err := errors.Join(os.Rename("run/step-00000002", "run/step-00000002.bad"), os.Remove("run/step-00000004/manifest.json"), os.Mkdir("run/.step-00000009.tmp", 0o777)); err != nil {
		t.Fatal(err)
	}
	before := files(t, ".")
	out := succeed(t, "inspect", "run")
	same(t, files(t, "."), before)
	for _, want := range []string{
		`(?m)^checkpoint +written +size +ranks +state$`,
		`(?m)^run/step-00000002.bad +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +[\d.]+ [KM]iB +2 +damaged: set aside$`,
		`(?m)^run/step-00000004 .* - +damaged: not complete: it has no manifest.json$`,
		`(?m)^run/step-00000006 .* [KM]iB +2 +complete$`,
		`(?m)^run/.step-00000009.tmp .* - +unfinished$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line is %s in\n%s", want, out)
		}
	}
}

func TestCheckpointVerify(t *testing.T) {
	threeCheckpoints(t)
	if out := succeed(t, "inspect", "--verify", "run", "run/step-00000002"); strings.Count(out, "ok     run/step-0000000") != 4 || !strings.Contains(out, "step 6 of 2 ranks") {
		t.Errorf("the output is\n%s", out)
	}
	breakShard(t, "run/step-00000004/rank-00001-of-00002.safetensors")
	before := files(t, ".")
	got := launch("inspect", "--verify", "run")
	if got.code != cli.ExitFailed || !strings.Contains(got.errOut, "broken: run/step-00000004") || strings.Contains(got.errOut, "step-00000002") {
		t.Errorf("exit code %d, errors %q", got.code, got.errOut)
	}
	if strings.Count(got.out, "ok ") != 2 || !strings.Contains(got.out, "BROKEN checkpoint run/step-00000004: rank-00001-of-00002.safetensors is damaged: chunk 0, bytes 0 to ") {
		t.Errorf("the output is\n%s", got.out)
	}
	same(t, files(t, "."), before)
}
