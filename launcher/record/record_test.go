package record

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// sample is a record of two steps, evaluated before and after both.
func sample() Log {
	log := Log{
		Starts: []Start{{CPU: "some CPU", Tier: "avx2", Cores: 8, Version: "0123456789ab"}},
		Times:  &Times{Steps: 1, Seconds: 0.25, Families: map[string]float64{"exchange": 0.05, "rest": 0.2}},
		Done:   &Done{Step: 2, HeldOut: 5.25, Skipped: 1, Passes: []Number{5, 5.5}},

		Samples: []Sample{{Step: 2, Prompt: "// New ", Text: "returns\n\t\"é\""}},
	}
	for step := range 3 {
		log.Evals = append(log.Evals, Eval{Step: step, Loss: Number(5.5 - float64(step)/8), Sequences: 64})
		if step > 0 {
			log.Steps = append(log.Steps, Step{Step: step, Loss: 5.125, GradNorm: 0.1, LR: 3e-3, Imbalance: 1.5, Seconds: 0.3, Skipped: step == 2})
			log.Loads = append(log.Loads, Load{Step: step, Layer: 1, Tokens: []int64{7, 0, 1 << 40}})
			log.Phases = append(log.Phases, Phases{Step: step, Steps: 1, Seconds: 0.25, Families: map[string]float64{"exchange": 0.25}})
			log.Quantized = append(log.Quantized, Quantized{
				Step: step, Layer: 1, Linear: "experts.down_proj", Tensor: Gradient, Format: "e4m3", Elements: 4096, Signal: 1e-40, Noise: 1e-43, Saturated: 2, Flushed: 3,
			})
		}
	}
	return log
}

// write adds what a log holds of some steps, as a run would.
func write(w *Writer, log Log, from, to int) {
	if from == 0 {
		w.Start(log.Starts[0])
	}
	for step := from; step <= to; step++ {
		for i := range log.Steps {
			if log.Steps[i].Step == step {
				w.Step(log.Steps[i])
				w.Load(log.Loads[i])
				w.Quantized(log.Quantized[i])
				w.Phases(log.Phases[i])
			}
		}
		w.Eval(log.Evals[step])
	}
}

func finish(w *Writer, log Log) {
	w.Times(*log.Times)
	w.Sample(log.Samples[0])
	w.Done(*log.Done)
}

func open(t *testing.T, run string, step int) *Writer {
	t.Helper()
	w, err := Open(run, step)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closed(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func readBack(t *testing.T, run string) Log {
	t.Helper()
	log, err := Read(run)
	if err != nil {
		t.Fatal(err)
	}
	return *log
}

// text is the file of a run, and what a crash leaves of it beside.
func text(t *testing.T, run string) string {
	t.Helper()
	if names, err := filepath.Glob(filepath.Join(run, ".record-*")); err != nil || len(names) > 0 {
		t.Errorf("left over: %v (%v)", names, err)
	}
	data, err := os.ReadFile(filepath.Join(run, File))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRoundTrip(t *testing.T) {
	run, want := t.TempDir(), sample()
	w := open(t, run, 0)
	write(w, want, 0, 2)
	finish(w, want)
	closed(t, w)
	if got := readBack(t, run); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v comes back as %+v", want, got)
	}
	begin := `{"start":{"step":0,"cpu":"some CPU","tier":"avx2","cores":8,"version":"0123456789ab"}}` + "\n" +
		`{"eval":{"step":0,"loss":5.5,"sequences":64}}` + "\n"
	if !strings.HasPrefix(text(t, run), begin) {
		t.Errorf("the file begins %.200s", text(t, run))
	}
	if got := want.Quantized[0].SQNR(); math.Abs(got-30) > 1e-9 {
		t.Errorf("a thousandth of noise is at %g dB", got)
	}
	// A run that begins anew forgets the old one.
	closed(t, open(t, run, 0))
	if got := readBack(t, run); !reflect.DeepEqual(got, Log{}) {
		t.Errorf("a new record holds %+v", got)
	}
}

// A run that goes on from a checkpoint leaves what an undisturbed one would, wherever it stopped
// after that checkpoint.
func TestResume(t *testing.T) {
	want := sample()
	whole := t.TempDir()
	w := open(t, whole, 0)
	write(w, want, 0, 2)
	finish(w, want)
	closed(t, w)
	all := text(t, whole)
	checkpoint := strings.Index(all, `{"eval":{"step":1`) // of step 1; its evaluation may come before it or not
	for end := checkpoint; end <= len(all); end += 7 {
		run := t.TempDir()
		if err := os.WriteFile(filepath.Join(run, File), []byte(all[:end]), 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, run, 1)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := text(t, run); !strings.HasPrefix(got, all[:checkpoint]) || strings.Contains(got, `"step":2`) {
			t.Fatalf("after %d bytes step 1 finds\n%s", end, got)
		}
		rest := want
		rest.Steps, rest.Loads, rest.Quantized, rest.Phases = want.Steps[1:], want.Loads[1:], want.Quantized[1:], want.Phases[1:]
		write(w, rest, 1, 2)
		finish(w, want)
		closed(t, w)
		if got := readBack(t, run); !reflect.DeepEqual(got, want) {
			t.Fatalf("cut after %d bytes and resumed:\n%s\nwant\n%s", end, text(t, run), all)
		}
	}
	if got := open(t, t.TempDir(), 5); got.Close() != nil {
		t.Error("a record that begins in the middle cannot be written")
	}
}

// A last line that was cut off is left out, whatever is missing of it.
func TestCutOff(t *testing.T) {
	run, log := t.TempDir(), sample()
	w := open(t, run, 0)
	write(w, log, 0, 1)
	closed(t, w)
	all := text(t, run)
	complete := strings.LastIndex(strings.TrimSuffix(all, "\n"), "\n") + 1
	log = readBack(t, run)
	log.Evals = log.Evals[:1]
	for end := complete; end < len(all); end++ {
		if err := os.WriteFile(filepath.Join(run, File), []byte(all[:end]), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readBack(t, run); !reflect.DeepEqual(got, log) {
			t.Fatalf("after %d bytes: %+v, want %+v", end, got, log)
		}
	}
}

// Lines that mean nothing are refused, with their place.
func TestRefusal(t *testing.T) {
	good := `{"eval":{"step":0,"loss":1,"sequences":1}}` + "\n"
	for line, want := range map[string]string{
		`{}`:                            ":2: it has none of the known keys",
		`{"stop":{"step":1}}`:           ":2: it has none of the known keys",
		`{"step":null}`:                 ":2: it has none of the known keys",
		`{"step":{"step":1},"eval":{}}`: ":2: it has several keys",
		`{"step":{"step":"one"}}`:       ":2: ",
		`step 1`:                        ":2: ",
		``:                              ":2: ",
	} {
		run := t.TempDir()
		if err := os.WriteFile(filepath.Join(run, File), []byte(good+line+"\n"+good), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(run); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), File) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no record: error %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), 0); err == nil {
		t.Error("a record was begun in a folder that does not exist")
	}
}

// Losses that are not numbers can be written, and are none when they come back.
func TestNotNumbers(t *testing.T) {
	run := t.TempDir()
	w := open(t, run, 0)
	w.Step(Step{Step: 1, Loss: Number(math.NaN()), GradNorm: Number(math.Inf(1))})
	closed(t, w)
	if s := readBack(t, run).Steps[0]; !math.IsNaN(float64(s.Loss)) || !math.IsNaN(float64(s.GradNorm)) {
		t.Errorf("comes back as %+v", s)
	}
}
