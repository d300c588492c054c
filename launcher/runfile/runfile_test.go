package runfile

import (
	"strings"
	"testing"
	"time"
)

// A file sets what it names and leaves the rest to the defaults; the section train comes back as
// text with its keys only.
func TestParse(t *testing.T) {
	f, train, err := Parse([]byte("out = \"x\"\n[train]\nsteps = 7\n[train.optimizer]\nlr = 2e-3\n[sample]\nprompts = [\"a\"]\n"))
	if err != nil || f.Out != "x" || f.Ranks != 1 || f.Train.Steps != 7 || f.Tokenizer.Vocab != 8192 || f.Eval.MaxTokens != -1 || f.Sample.MaxTokens != 200 {
		t.Errorf("%v, %+v", err, f)
	}
	if got := string(train); got != "steps = 7\n\n[optimizer]\nlr = 0.002\n" {
		t.Errorf("train is %q", got)
	}
}

// All mistakes of a file are reported together.
func TestMistakes(t *testing.T) {
	_, _, err := Parse([]byte("ranks = 0\n[export]\ndtype = \"fp8\"\n[train]\nout = \"y\"\n[sample]\nprompts = [\"\"]\ntemperature = -1.0\n"))
	for _, want := range []string{"out is empty", "ranks is 0", `"fp8"`, "train.out is set by the run", "empty prompt", "sample.temperature is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// The verdict compares losses of the same text only. Time and memory have none, because machines
// differ.
func TestRows(t *testing.T) {
	e := Expected{Basis: Measured, Machine: "m", Corpus: "c", BitsPerByte: 2, Tolerance: 1, Tokens: 1000, Minutes: 20, MemoryMiB: 700}
	for _, c := range []struct {
		corpus string
		bits   float64
		want   string
		missed bool
	}{
		{"c", 2.01, "as expected: +0.50 %", false},
		{"c", 2.03, "worse than expected: +1.50 %, allowed are 1 %", true},
		{"c", 1.9, "better than expected: -5.00 %", false},
		{"d", 2.5, "another text than expected: not comparable", false},
	} {
		r := Reached{Corpus: c.corpus, BitsPerByte: c.bits, Tokens: 1000, Time: 90 * time.Second, Memory: 1 << 30}
		rows := e.Rows(r)
		if rows[0].Verdict != c.want || e.Missed(r) != c.missed || rows[2] != (Row{"time of all stages", "20m00s", "1m30s", ""}) {
			t.Errorf("%+v: %+v, missed %v", c, rows, e.Missed(r))
		}
	}
	if rows := (Expected{}).Rows(Reached{BitsPerByte: 2}); rows[0].Expected != "-" || rows[0].Verdict != "no expectation" {
		t.Errorf("%+v", rows)
	}
}
