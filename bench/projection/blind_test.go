package projection

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// The committed predictions are those of this code and data. They were made before anyone compared
// them with a result. A change of the code that is meant to keep them changes only the hash:
//
//	cd bench/projection
//	go run ../../launcher project blind --in blind-runs.json --out predictions.json
func TestPredictionsAreReproduced(t *testing.T) {
	runs, err := os.ReadFile("blind-runs.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("predictions.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := PredictBlind(runs)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.JSON(); !bytes.Equal(got, want) {
		for i, line := range bytes.Split(got, []byte("\n")) {
			if lines := bytes.Split(want, []byte("\n")); i >= len(lines) || !bytes.Equal(line, lines[i]) {
				t.Fatalf("predictions.json differs in line %d, now\n%s", i+1, line)
			}
		}
		t.Fatal("predictions.json has more lines")
	}
	if len(b.Rows) != 110 {
		t.Errorf("%d rows, want 110", len(b.Rows))
	}
	for _, r := range b.Rows {
		if !(0 < r.Low && r.Low < r.Tokens && r.Tokens < r.High) || len(r.Terms) != 3 || r.Terms[0].Share < r.Terms[1].Share || r.Terms[1].Share < r.Terms[2].Share {
			t.Errorf("%+v", r)
		}
	}
}

// A row that cannot be predicted is named, with the reason.
func TestBlindRefused(t *testing.T) {
	const row = `{"id":"b300-26.02","tier":"A","run":{"model":"671B","gpu":"B300","gpus":256,"precision":"mxfp8","seq":4096,"batch":4096,"micro_batch":1,"mtp":true,"tp":1,"pp":16,"vp":1,"ep":8,"cp":1,"recompute":"mla_up_proj","dispatcher":"hybridep","routing":"uniform"}}`
	whole := func(from, to string) string {
		return `{"rows":[` + strings.Replace(row, from, to, 1) + `]}`
	}
	if _, err := PredictBlind([]byte(whole("", ""))); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ text, want string }{
		{`{`, "offset"},
		{`{"rows":[]}`, "there are no rows"},
		{whole("b300-26.02", "some"), `row 1, "some": no entry of data/software.json`},
		{whole(`"cp":1`, `"cp":2`), "context parallelism of 2"},
		{whole(`"micro_batch":1`, `"micro_batch":null`), "micro-batch is 0"},
		{whole(`"mla_up_proj"`, `"attention"`), `recompute "attention" is unknown`},
		{whole(`"B300"`, `"B400"`), `GPU "B400" is unknown`},
		{whole(`"routing":"uniform"`, `"routing":"best"`), `routing "best" is unknown`},
	} {
		if _, err := PredictBlind([]byte(x.text)); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s\ngives %v, want %q", x.text, err, x.want)
		}
	}
}

// The quantiles of a mixture: of one normal distribution, of two that are apart, by weight.
func TestMixture(t *testing.T) {
	one := mixture{{mean: 2, sd: 0.5, weight: 3}}
	if got := one.quantile(.9); math.Abs(got-2-0.5*z80) > 1e-9 || math.Abs(one.quantile(.5)-2) > 1e-9 {
		t.Errorf("one: %g and %g", one.quantile(.5), got)
	}
	two := mixture{{0, 0.01, 3}, {1, 0.01, 1}}
	if a, b := two.quantile(.7), two.quantile(.8); a > 0.1 || b < 0.9 {
		t.Errorf("two: %g and %g", a, b)
	}
}

// Alternatives of what a row leaves open widen its interval; what a row says counts.
func TestAlternatives(t *testing.T) {
	row := blindRow{ID: "x", Run: blindRun{Model: "671B", Routing: "natural, early"}}
	four := 4
	row.Run.MicroBatch = &four
	runs, err := row.runs(softwareEntry{Options: []softwareOption{{Stack: "a", Weight: 0.5, MicroBatch: 2, Batch: 8, Recompute: "full"}, {Stack: "b", Weight: 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, r := range runs {
		sum += r.weight
	}
	if len(runs) != 6 || math.Abs(sum-1) > 1e-12 || runs[0].MicroBatch != 4 || runs[0].Batch != 8 || runs[0].Recompute != "full" || runs[5].Recompute != "none" || runs[5].Routing != Natural || runs[5].Imbalance != 2.2 {
		t.Errorf("%+v", runs)
	}
}

// The hash is of the code and the data, without tests.
func TestCodeHash(t *testing.T) {
	if h := CodeHash(); len(h) != 64 || h != CodeHash() || h == ParameterHash() {
		t.Errorf("hash %q", h)
	}
	for _, name := range []string{"blind.go", "data/software.json", "data/hardware/mi325x.json"} {
		if _, err := files.ReadFile(name); err != nil {
			t.Errorf("the hash leaves out %s: %v", name, err)
		}
	}
}

// Every entry of the software file has a source, describes a row, and names stacks that exist.
func TestSoftware(t *testing.T) {
	text, err := os.ReadFile("blind-runs.json")
	if err != nil {
		t.Fatal(err)
	}
	var file blindFile
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, r := range file.Rows {
		e, err := data().software.entry(r.ID)
		if err != nil {
			t.Fatal(err)
		}
		used[e.Rows[0]] = true
	}
	for _, e := range data().software.Entries {
		if e.Source == "" || !used[e.Rows[0]] {
			t.Errorf("%+v has no source or no row", e)
		}
		for _, o := range e.Options {
			if _, ok := data().stacks[o.Stack]; !ok {
				t.Errorf("%v: stack %q is unknown", e.Rows, o.Stack)
			}
		}
	}
}
