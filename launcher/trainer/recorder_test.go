package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
)

// recorded is a tiny run in MXFP8 that writes a record.
func recorded(t *testing.T, change func(*config.Config)) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Precision, c.Steps, c.RecordEvery, c.EvalEvery = "mxfp8", 6, 3, 2
		if change != nil {
			change(c)
		}
	})
}

// What the tiny model quantizes in a step of 256 tokens with 2 experts each.
const operands, operandElements = 40, 327680

func readRecord(t *testing.T, cfg config.Config) *record.Log {
	t.Helper()
	log, err := record.Read(cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// A record holds what was reported, and the sums over all ranks of what was not.
func TestRecord(t *testing.T) {
	t.Parallel()
	for _, ranks := range []int{1, 2, 4} {
		cfg := recorded(t, func(c *config.Config) { c.MicroBatch = 1 })
		got := train(t, cfg, ranks, "")
		log := readRecord(t, cfg)
		for i, s := range log.Steps {
			r := got.steps[i]
			if !(s.Time > 1e9) {
				t.Errorf("%d ranks: step %d ended at %v", ranks, s.Step, s.Time)
			}
			if s.Step != r.Step || s.Loss != r.Loss || s.GradNorm != r.GradNorm || s.LR != r.LR || s.Imbalance != r.Imbalance || s.Skipped ||
				!(s.Seconds > 0) {
				t.Errorf("%d ranks: %+v is recorded of %+v", ranks, s, r)
			}
		}
		for i, e := range log.Evals {
			if r := got.evals[i]; !reflect.DeepEqual(e, record.Eval{Step: r.Step, Loss: record.Number(r.Loss), BitsPerByte: record.Number(r.BitsPerByte), Sequences: r.Sequences}) {
				t.Errorf("%d ranks: %+v is recorded of %+v", ranks, e, r)
			}
		}
		if len(log.Steps) != 6 || len(log.Evals) != 4 || len(log.Loads) != 3 || len(log.Quantized) != 3*operands {
			t.Fatalf("%d ranks: %d steps, %d evaluations, %d loads, %d operands", ranks, len(log.Steps), len(log.Evals), len(log.Loads), len(log.Quantized))
		}
		done := got.done[0]
		want := record.Done{
			Step: 6, HeldOut: record.Number(done.HeldOut.Last), Passes: log.Done.Passes,
		}
		if !reflect.DeepEqual(*log.Done, want) || math.Abs(float64(meanOf(log.Done.Passes)-want.HeldOut)) > 1e-12 {
			t.Errorf("%d ranks: done %+v, want %+v", ranks, *log.Done, want)
		}
		for i, l := range log.Loads {
			var all int64
			for _, n := range l.Tokens {
				all += n
			}
			if l.Step != []int{1, 3, 6}[i] || l.Layer != 1 || len(l.Tokens) != cfg.Model.Experts || all != int64(cfg.Batch*cfg.Seq*cfg.Model.TopK) {
				t.Errorf("%d ranks: load %+v", ranks, l)
			}
		}
		elements := int64(0)
		for i, q := range log.Quantized {
			elements += q.Elements
			if q.Step != []int{1, 3, 6}[i/operands] || q.Format != "e4m3" || q.SQNR() < 28 || q.SQNR() > 40 || q.Saturated != 0 || q.Flushed > q.Elements/20 {
				t.Errorf("%d ranks: %+v at %.1f dB", ranks, q, q.SQNR())
			}
		}
		if elements != 3*operandElements {
			t.Errorf("%d ranks: operands of %d elements, want %d", ranks, elements, 3*operandElements)
		}
		if tm := log.Times; tm.Steps != 5 || !(tm.Seconds > 0) || !(tm.Families["mx forward"] > 0) || !(tm.Families["quantize"] > 0) {
			t.Errorf("%d ranks: times %+v", ranks, *tm)
		}
		if len(got.prof) > 0 {
			t.Errorf("%d ranks: a profile was reported unasked", ranks)
		}
	}
}

// Loads, biases and phases are recorded every 20 steps if nothing else is said; the phases are
// those of the steps between.
func TestLoadEvery(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.LogEvery = 2*observe.LoadEvery+1, 100 })
	train(t, cfg, 2, "")
	log := readRecord(t, cfg)
	if len(log.Loads) != 3 || log.Loads[1].Step != observe.LoadEvery || log.Loads[2].Step != 2*observe.LoadEvery {
		t.Fatalf("loads %+v", log.Loads)
	}
	if len(log.Phases) != 2 || log.Phases[0].Steps != observe.LoadEvery-1 || log.Phases[1].Steps != observe.LoadEvery ||
		log.Phases[1].Step != 2*observe.LoadEvery {
		t.Fatalf("phases %+v", log.Phases)
	}
	for _, p := range log.Phases {
		sum := 0.0
		for _, seconds := range p.Families {
			sum += seconds
		}
		if math.Abs(sum-p.Seconds) > 1e-6*p.Seconds || !(p.Seconds > 0) {
			t.Errorf("the families take %v, the step %v", sum, p.Seconds)
		}
	}
}

// interrupt runs cfg up to a step, to stop after which it is told during the one before.
func interrupt(t *testing.T, cfg config.Config, ranks, after int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &reports{onStep: func(s events.Step) {
		if s.Step == after-1 {
			cancel()
		}
	}}
	job, err := Prepare(cfg, ranks, "", r)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Run(ctx, spmd.Goroutines{N: ranks}); !errors.Is(err, events.ErrInterrupted) {
		t.Fatalf("error %v, want %v", err, events.ErrInterrupted)
	}
}

// Whether a run is interrupted, or falls back to an older checkpoint, its record ends as that of an
// undisturbed one.
func TestResumedRecord(t *testing.T) {
	t.Parallel()
	const ranks = 2
	cfg := recorded(t, func(c *config.Config) { c.SaveEvery, c.Keep = 1, 9 })
	train(t, cfg, ranks, "")
	finished := readRecord(t, cfg)
	want := finished.Timeless()
	train(t, cfg, ranks, cfg.Out) // with nothing to do: the record stays, times included
	if got := readRecord(t, cfg); !reflect.DeepEqual(got, finished) {
		t.Errorf("the record holds\n%.2000s, before\n%.2000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", finished))
	}
	for _, after := range []int{2, 5} {
		t.Run(fmt.Sprintf("interrupted after %d", after), func(t *testing.T) {
			cfg := cfg
			cfg.Out, cfg.SaveEvery = t.TempDir(), 0
			interrupt(t, cfg, ranks, after)
			first := readRecord(t, cfg)
			if len(first.Steps) != after || first.Done != nil || first.Times == nil {
				t.Fatalf("%d steps are recorded, done %v, times %v", len(first.Steps), first.Done, first.Times)
			}
			train(t, cfg, ranks, cfg.Out)
			log := readRecord(t, cfg)
			if got := log.Timeless(); !reflect.DeepEqual(got, want) {
				t.Errorf("the record holds\n%.2000s, want\n%.2000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			}
			// The last part's times are given, if it has made a step that is not its first.
			if warm := 6 - after - 1; warm > 0 && log.Times.Steps != warm || warm == 0 && !reflect.DeepEqual(log.Times, first.Times) {
				t.Errorf("times of %d steps, before of %d", log.Times.Steps, first.Times.Steps)
			}
		})
	}
	for _, step := range []int{4, 1} {
		t.Run(fmt.Sprintf("back to step %d", step), func(t *testing.T) {
			for newer := step + 1; newer <= 6; newer++ {
				if err := os.RemoveAll(filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", newer))); err != nil {
					t.Fatal(err)
				}
			}
			cfg := cfg
			cfg.SaveEvery = 0
			train(t, cfg, ranks, cfg.Out)
			if got := readRecord(t, cfg).Timeless(); !reflect.DeepEqual(got, want) {
				t.Errorf("the record holds\n%.2000s, want\n%.2000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
			}
		})
	}
}

func meanOf(all []record.Number) (mean record.Number) {
	for _, x := range all {
		mean += x / record.Number(len(all))
	}
	return mean
}
