package trainer

// A run gives one result for 1, 2, 4 and 8 ranks, bit for bit: what is reported of its steps, and
// the state that it ends with.

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"runtime"
	"slices"
	"testing"

	"spmoe/collective/heap"
	"spmoe/launcher/trainer/config"
)

// outcome is what does not depend on the time of day.
type outcome struct {
	steps  []string
	evals  []float64
	state  uint32 // CRC-32C of all tensors of the last checkpoint, by name
	sample string
}

func outcomeOf(t *testing.T, cfg config.Config, ranks int) outcome {
	t.Helper()
	cfg.Out = t.TempDir()
	return outcomeFrom(t, cfg, train(t, cfg, ranks, ""))
}

// outcomeFrom is the outcome of a run that has ended.
func outcomeFrom(t *testing.T, cfg config.Config, got *reports) (o outcome) {
	t.Helper()
	for _, s := range got.steps {
		o.steps = append(o.steps, fmt.Sprintf("step %d: loss %x, MTP %x, balance %x, norm %x, imbalance %x, lr %x", s.Step, s.Loss, s.MTPLoss, s.Balance, s.GradNorm, s.Imbalance, s.LR))
	}
	for _, e := range got.evals {
		o.evals = append(o.evals, e.Loss)
	}
	_, tensors := savedProgress(t, cfg, cfg.Steps)
	crc := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		fmt.Fprint(crc, name)
		for _, x := range tensors[name] {
			bits := math.Float32bits(x)
			crc.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
		}
	}
	o.state = crc.Sum32()
	if len(got.done) > 0 {
		o.sample = got.done[0].Sample
	}
	return o
}

func (o outcome) equals(t *testing.T, what string, want outcome) {
	t.Helper()
	for i, s := range o.steps {
		if s != want.steps[i] {
			t.Errorf("%s: %s, want %s", what, s, want.steps[i])
		}
	}
	if !slices.Equal(o.evals, want.evals) {
		t.Errorf("%s: validation losses %v, want %v", what, o.evals, want.evals)
	}
	if o.sample != want.sample {
		t.Errorf("%s: sample %q, want %q", what, o.sample, want.sample)
	}
	if len(o.steps) != len(want.steps) || o.state != want.state {
		t.Errorf("%s: %d steps end in weights and moments of checksum %08x; want %d and %08x", what, len(o.steps), o.state, len(want.steps), want.state)
	}
}

// Ranks poll and help each other here, as they do outside of tests.
func TestOneResultForAllRanks(t *testing.T) {
	t.Setenv(heap.ParkVar, "")
	for _, precision := range []string{"bf16", "mxfp8-experts"} {
		t.Run(precision, func(t *testing.T) {
			cfg := tiny(t, func(c *config.Config) {
				c.Precision, c.Steps, c.Seq, c.EvalSequences, c.Optimizer.ClipNorm = precision, 2, 96, 8, 0.1
				c.Model.Experts, c.Model.MTPLayers, c.Model.BalanceAlpha = 8, 1, 0.01
			})
			want := outcomeOf(t, cfg, 1)
			for _, ranks := range []int{2, 4, 8} {
				outcomeOf(t, cfg, ranks).equals(t, fmt.Sprintf("np %d", ranks), want)
			}
			if precision != "bf16" {
				return
			}
			cfg.EPExchange = "standard"
			outcomeOf(t, cfg, 2).equals(t, "np 2, standard exchange", want)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			outcomeOf(t, cfg, 4).equals(t, "np 4 on one core", want)
			other := cfg
			other.Seed++
			if outcomeOf(t, other, 2).state == want.state {
				t.Error("another seed ends in the same weights")
			}
		})
	}
}
