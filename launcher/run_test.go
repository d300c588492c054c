package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinyFile is a run file whose stages take milliseconds.
const tinyFile = `out = "tiny"
ranks = 2
[tokenizer]
vocab = 300
[train]
steps = 6
seq = 32
batch = 4
log_every = 1
save_every = 2
eval_sequences = 4
sample_tokens = 0
[train.optimizer]
warmup = 2
decay_frac = 0.0
[train.model]
dim = 32
layers = 2
dense_inter = 64
heads = 2
kv_rank = 16
nope_dim = 8
rope_dim = 8
value_dim = 16
experts = 4
top_k = 2
expert_inter = 32
[sample]
prompts = ["the rank ", "a token "]
max_tokens = 10
`

// expecting is a section that expects a loss of a text.
func expecting(bits, corpus string) string {
	return "[expected]\nbasis = \"measured\"\nmachine = \"a test\"\ntokens = 768\nminutes = 1.0\nmemory_mib = 100\nbits_per_byte = " + bits + "\ncorpus = \"" + corpus + "\"\n"
}

// told returns the lines about stages in the output of run, without those of the stages themselves.
func told(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if what, ok := strings.CutPrefix(line, "-- "); ok {
			lines = append(lines, strings.TrimSpace(what))
		}
	}
	return strings.Join(lines, "\n")
}

const (
	allStages  = "corpus\ntokenizer\ntokens\ntrain\neval\nsample\nexport\npage"
	doneStages = "corpus\ntokenizer: done before\ntokens: done before\ntrain: done before\neval: done before\nsample: done before\nexport: done before\npage"
)

// A run makes everything once. Afterwards it repeats what a change concerns, and nothing else.
func TestRunStages(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	file := write(t, "run.toml", tinyFile)
	first := succeed(t, "run", file, "--data", data)
	if got := told(first); got != allStages {
		t.Errorf("stages:\n%s", got)
	}
	for _, name := range []string{"tokenizer.json", "tokens.arrow", "model/report.html", "sample.txt", "exported/model.safetensors", "exported/tokenizer.json", "report.html"} {
		if info, err := os.Stat(filepath.Join("tiny", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	sample, err := os.ReadFile("tiny/sample.txt")
	page, unreadable := os.ReadFile("tiny/report.html")
	if err != nil || unreadable != nil || !strings.Contains(string(sample), "== 2: \"a token \"\na token ") || !strings.Contains(string(page), "the rank ") {
		t.Errorf("sample %q, %v, %v", sample, err, unreadable)
	}
	if got := told(succeed(t, "run", file, "--data", data, "-np", "1")); got != doneStages {
		t.Errorf("again:\n%s", got)
	}
	runExpected(t, first, data)
	write(t, file, strings.Replace(tinyFile, "max_tokens = 10", "max_tokens = 11", 1))
	changed := "sample: its inputs changed: the earlier sample.txt is now sample.txt.old\nsample\n"
	if got := told(succeed(t, "run", file, "--data", data)); got != strings.Replace(doneStages, "sample: done before\n", changed, 1) {
		t.Errorf("with a longer sample:\n%s", got)
	}
	write(t, filepath.Join(data, "7.txt"), "one more text of some words")
	if got := told(succeed(t, "run", file, "--data", data)); strings.Contains(got, "done before") || !strings.Contains(got, "the earlier model is now model.old") {
		t.Errorf("with more text:\n%s", got)
	}
}

// runExpected compares a finished run with several expectations. The exit code says whether the
// loss is worse than expected on the expected text.
func runExpected(t *testing.T, out, data string) {
	t.Helper()
	_, hash, _ := strings.Cut(out, "SHA-256 ")
	hash, _, _ = strings.Cut(hash, "\n")
	for _, c := range []struct {
		bits, corpus, verdict string
		code                  int
	}{
		{"0.1", hash, "worse than expected", exitFailed},
		{"0.1", strings.Repeat("0", len(hash)), "not comparable", exitOK},
		{"100.0", hash, "better than expected", exitOK},
	} {
		got := launch("run", write(t, "expecting.toml", tinyFile+expecting(c.bits, c.corpus)), "--data", data)
		if got.code != c.code || got.errOut != "" || !strings.Contains(got.out, c.verdict) || told(got.out) != doneStages {
			t.Errorf("%s: exit code %d, errors %q, output\n%s", c.verdict, got.code, got.errOut, got.out)
		}
	}
}

// A run that was interrupted while it trained continues, and comes to the same model.
func TestRunInterrupted(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	file := write(t, "run.toml", tinyFile)
	succeed(t, "run", file, "--data", data, "--out", "straight")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := launchTo(ctx, &watcher{[]string{"step: 3 "}, cancel}, "run", file, "--data", data)
	want := "interrupted; to continue: launcher run run.toml --data " + data
	if got.code != exitInterrupted || !strings.Contains(got.out, want) || strings.Contains(got.out, "-- eval") {
		t.Fatalf("exit code %d, errors %q, no %q in\n%s", got.code, got.errOut, want, got.out)
	}
	rest := succeed(t, "run", file, "--data", data)
	if !strings.Contains(rest, "tokens: done before") || strings.Contains(rest, "step: 1 ") || !strings.Contains(rest, "step: 6 ") {
		t.Errorf("the rest:\n%s", rest)
	}
	same(t, files(t, "tiny/exported"), files(t, "straight/exported"))
}

// Mistakes end before the first stage, without a trace on the disk.
func TestRunUsage(t *testing.T) {
	data := text(t)
	replaced := func(old, new string) string { return strings.Replace(tinyFile, old, new, 1) }
	for name, c := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"unknown key":   {replaced("steps = 6", "stepz = 6"), nil, []string{"run.toml:6", "train.stepz"}},
		"wrong type":    {replaced("steps = 6", `steps = "six"`), nil, []string{"run.toml:6", "whole number"}},
		"bad value":     {replaced("top_k = 2", "top_k = 9"), nil, []string{"section train", "model.top_k is 9"}},
		"bad ranks":     {tinyFile, []string{"-np", "3"}, []string{"-np 3"}},
		"set by stages": {replaced("steps = 6", `data = ["x"]`), nil, []string{"train.data is set by the run", "corpus.data"}},
		"no folder":     {replaced(`out = "tiny"`, ""), nil, []string{"out is empty"}},
		"vocabulary":    {replaced("vocab = 300", "vocab = 3"), nil, []string{"tokenizer.vocab is 3"}},
		"half expected": {tinyFile + "[expected]\nbits_per_byte = 1.0\n", nil, []string{"no basis"}},
		"basis":         {tinyFile + strings.Replace(expecting("1.0", ""), "measured", "hoped", 1), nil, []string{`"hoped"`, "extrapolated"}},
		"two files":     {tinyFile, []string{"other.toml"}, []string{"one run file", "other.toml"}},
		"no text":       {tinyFile, []string{"--data", "none"}, []string{"none", "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "run.toml", c.file)
			args := append([]string{"run", "run.toml"}, c.args...)
			if name != "no text" {
				args = append(args, "--data", data)
			}
			refuse(t, exitUsage, args, c.want...)
			if _, err := os.Stat("tiny"); err == nil {
				t.Error("it has written a folder")
			}
		})
	}
	t.Chdir(t.TempDir())
	refuse(t, exitUsage, []string{"run", "none.toml"}, "none.toml", "give a run file")
}

// The run files in docs can be run. They say what to expect, and on which machine.
func TestRunFilesInDocs(t *testing.T) {
	files, err := filepath.Glob("../docs/recipes/*.toml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		r, err := new(runFlags).read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		first, _, _ := strings.Cut(string(r.text), "\n")
		if want := "# launcher run " + strings.TrimPrefix(file, "../"); first != want {
			t.Errorf("%s: the first line is %q, want %q", file, first, want)
		}
		if r.file.Expected.Basis == "" || r.file.Expected.Corpus == "" {
			t.Errorf("%s: the section expected is incomplete", file)
		}
	}
}
