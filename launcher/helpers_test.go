package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/report/export"
	"spmoe/launcher/report/page"
)

// ownText is a small corpus that needs no writing: a file of this package.
var ownText, _ = filepath.Abs("resume_test.go")

// outcome is what a command line did.
type outcome struct {
	code        int
	out, errOut string
}

// launch executes a command line.
func launch(args ...string) outcome { return launchTo(context.Background(), io.Discard, args...) }

// launchTo is launch with a context and with a second writer that sees the output as it comes.
func launchTo(ctx context.Context, also io.Writer, args ...string) outcome {
	var out, errOut bytes.Buffer
	code := run(ctx, args, io.MultiWriter(&out, also), &errOut)
	return outcome{code, out.String(), errOut.String()}
}

// succeed is launch for a command line that must work.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	got := launch(args...)
	if got.code != cli.ExitOK || got.errOut != "" {
		t.Fatalf("%q: exit code %d: %s", args, got.code, got.errOut)
	}
	return got.out
}

// briefly is launch for a command line that should be refused. One that is not ends soon: its
// context is over.
func briefly(args ...string) outcome {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return launchTo(ctx, io.Discard, args...)
}

// refuse is for a command line that must end with a code and a message that has all of want.
func refuse(t *testing.T, code int, args []string, want ...string) {
	t.Helper()
	got := briefly(args...)
	if got.code != code {
		t.Errorf("%q: exit code %d, want %d; output %q, errors %q", args, got.code, code, got.out, got.errOut)
	}
	for _, w := range want {
		if !strings.Contains(got.errOut, w) {
			t.Errorf("%q: the message is %q, want %q in it", args, got.errOut, w)
		}
	}
	if strings.Contains(got.errOut, "goroutine 1") {
		t.Errorf("%q: a stack trace reached the user:\n%s", args, got.errOut)
	}
}

// verify compares the checkpoints of a run with their checksums.
func verify(t *testing.T, run string) {
	t.Helper()
	succeed(t, "inspect", "--verify", run)
}

// watcher calls do once, when a line has come that has all of words.
type watcher struct {
	words []string
	do    func()
}

func (w *watcher) Write(line []byte) (int, error) {
	for _, word := range w.words {
		if !bytes.Contains(line, []byte(word)) {
			return len(line), nil
		}
	}
	if w.do != nil {
		w.do()
		w.do = nil
	}
	return len(line), nil
}

// within reports whether a condition holds within a minute.
func within(holds func() bool) bool {
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// await returns when a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !within(holds) {
		t.Fatalf("there was never %s", what)
	}
}

// text makes a folder of text files outside the working directory: random sentences of few words.
func text(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	words := strings.Fields("the a rank expert token router sends reads every some gradient weight to from and")
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 6 {
		var b strings.Builder
		for b.Len() < 4000*(i+1) {
			b.WriteString(words[rng.IntN(len(words))] + " ")
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.txt", i)), b.String())
	}
	return dir
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyModel are the flags of a model whose step takes milliseconds.
var tinyModel = strings.Fields(`--set model.dim=32 --set model.layers=2 --set model.dense_inter=64 --set model.heads=2 --set model.kv_rank=16 --set model.nope_dim=8
	--set model.rope_dim=8 --set model.value_dim=16 --set model.experts=4 --set model.top_k=2 --set model.expert_inter=32`)

// tiny is the command line of a run that takes milliseconds and draws nothing. Its learning rate
// does not depend on the number of steps.
func tiny(data string, more ...string) []string {
	return slices.Concat([]string{"train", "--report=false"}, tinyRun(data), more)
}

// tinyRun is what runs and comparisons of a tiny model have in common.
func tinyRun(data string) []string {
	return append(strings.Fields("--data "+data+` --seq 32 --batch 4 --steps 6 --set log_every=1 --set eval_sequences=4 --set sample_tokens=8
		--set optimizer.warmup=2 --set optimizer.decay_frac=0`), tinyModel...)
}

// clocked are the names in the folder of a run that show what the clock said.
var clocked = []string{export.TensorBoardFolder, page.File}

// files returns what is below dir, by path; a folder ends in a slash. What the clock said is left
// out.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(clocked, entry.Name()) && entry.IsDir():
			return fs.SkipDir
		case slices.Contains(clocked, entry.Name()):
			return nil
		case entry.IsDir():
			all[name+"/"] = ""
			return nil
		case entry.Name() == record.File:
			log, err := record.Read(filepath.Dir(path))
			if err != nil {
				return err
			}
			text, err := json.Marshal(log.Timeless())
			all[name] = string(text)
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// runID is what manifests of two runs with the same bits differ in.
var runID = regexp.MustCompile(`^\{"sha256":"[0-9a-f]+"|"run":"[0-9a-f]+",`)

// same reports how two listings of files differ, except in the ids of runs.
func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, content := range want {
		if other, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		} else if other != content && runID.ReplaceAllString(other, "") != runID.ReplaceAllString(content, "") {
			t.Errorf("%s differs", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}
