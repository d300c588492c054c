package moe

// A model gives the same answers however its experts and its batch are spread over ranks, and
// the very same bits when it is run again.

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"spmoe/tensor"
)

// spreadModel has all the parts whose sums cross ranks.
func spreadModel() Config {
	c := tiny()
	grouped(&c)
	c.MTPLayers, c.BalanceAlpha, c.QRank = 1, 0.1, 10
	return c
}

// outcome is what a training pass left behind, over all ranks.
type outcome struct {
	loss  Loss
	grads map[string][]float32 // replicated ones summed over the ranks
	loads map[int][]int64      // by layer, summed
	raw   []map[string][]float32
}

// train runs one pass over b, rank r of the world having sequences [cuts[r], cuts[r+1]), in
// micro-batches of up to micro sequences.
func train(t *testing.T, cfg Config, dtype tensor.DType, b Batch, cuts []int, micro int) outcome {
	t.Helper()
	ranks := len(cuts) - 1
	out := outcome{grads: map[string][]float32{}, loads: map[int][]int64{}, raw: make([]map[string][]float32, ranks)}
	passes := 0
	for r := range ranks {
		passes = max(passes, (cuts[r+1]-cuts[r]+micro-1)/micro)
	}
	var mu sync.Mutex
	onRanks(t, ranks, cfg, dtype, b.Seq, func(m *member) error {
		r := m.comm.Rank()
		var losses []Loss
		for i := range passes {
			lo := min(cuts[r]+i*micro, cuts[r+1])
			loss, err := m.model.Train(m.ex, b.part(lo, min(lo+micro, cuts[r+1])))
			if err != nil {
				return err
			}
			losses = append(losses, loss)
		}
		mu.Lock()
		defer mu.Unlock()
		out.add(m, losses)
		return nil
	})
	return out
}

func (o *outcome) add(m *member, losses []Loss) {
	for _, l := range losses {
		o.loss.Sum, o.loss.Ahead, o.loss.Balance = o.loss.Sum+l.Sum, o.loss.Ahead+l.Ahead, o.loss.Balance+l.Balance
		o.loss.Tokens, o.loss.AheadTokens = o.loss.Tokens+l.Tokens, o.loss.AheadTokens+l.AheadTokens
	}
	grads := m.gradients()
	o.raw[m.comm.Rank()] = grads
	for name, g := range grads {
		if o.grads[name] == nil {
			o.grads[name] = make([]float32, len(g))
		} else if m.shared(name) {
			continue // it has the tokens of all ranks
		}
		for i, v := range g {
			o.grads[name][i] += v
		}
	}
	for _, r := range m.model.Routings() {
		if o.loads[r.Layer] == nil {
			o.loads[r.Layer] = make([]int64, len(r.Load))
		}
		for e, n := range r.Load {
			o.loads[r.Layer][e] += n
		}
	}
}

// agrees checks that o is want but for rounding.
func (o outcome) agrees(t *testing.T, want outcome) {
	t.Helper()
	for _, l := range []struct {
		name      string
		got, want float64
	}{
		{"cross-entropy", o.loss.Sum, want.loss.Sum},
		{"MTP cross-entropy", o.loss.Ahead, want.loss.Ahead},
		{"balance loss", o.loss.Balance, want.loss.Balance},
	} {
		if !(math.Abs(l.got-l.want) <= 1e-6*math.Abs(l.want)) {
			t.Errorf("%s is %.9g, want %.9g", l.name, l.got, l.want)
		}
	}
	if o.loss.Tokens != want.loss.Tokens || o.loss.AheadTokens != want.loss.AheadTokens {
		t.Errorf("%d and %d MTP tokens, want %d and %d", o.loss.Tokens, o.loss.AheadTokens, want.loss.Tokens, want.loss.AheadTokens)
	}
	if len(o.grads) != len(want.grads) {
		t.Errorf("%d parameters, want %d", len(o.grads), len(want.grads))
	}
	for name, g := range want.grads {
		if d := distance(o.grads[name], g); !(d < 1e-5) {
			t.Errorf("gradient of %s is off by %.2g of its length", name, d)
		}
	}
	if !maps.EqualFunc(o.loads, want.loads, slices.Equal) {
		t.Errorf("loads are %v, want %v", o.loads, want.loads)
	}
}

// even cuts n sequences into equal parts.
func even(n, ranks int) []int {
	cuts := make([]int, ranks+1)
	for r := range cuts {
		cuts[r] = n * r / ranks
	}
	return cuts
}

func TestRanksAgree(t *testing.T) {
	cfg := spreadModel()
	b := batchOf(11, 8, 8, cfg.Vocab)
	want := train(t, cfg, tensor.FP32, b, even(8, 1), 8)
	if want.loss.Tokens != 64 || want.loss.AheadTokens != 56 || want.loss.Balance <= 0 {
		t.Fatalf("measured %+v", want.loss)
	}
	for _, c := range []struct {
		name  string
		cuts  []int
		micro int
	}{
		{"np2", even(8, 2), 8},
		{"np4", even(8, 4), 8},
		{"np8", even(8, 8), 8},
		{"np4 of uneven parts", []int{0, 1, 4, 6, 8}, 8},
		{"np4 with two ranks without tokens", []int{0, 0, 3, 3, 8}, 8},
		{"np8 with one rank's tokens", []int{0, 0, 0, 0, 0, 8, 8, 8, 8}, 8},
		{"np1 accumulating 4 passes", even(8, 1), 2},
		{"np1 accumulating uneven passes", even(8, 1), 3},
		{"np2 accumulating 4 passes", even(8, 2), 1},
		{"np2 accumulating, one done early", []int{0, 2, 8}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			train(t, cfg, tensor.FP32, b, c.cuts, c.micro).agrees(t, want)
		})
	}
}

func TestEvalAgreesOverRanks(t *testing.T) {
	cfg := spreadModel()
	b := batchOf(12, 8, 8, cfg.Vocab)
	single := alone(t, cfg, tensor.FP32, 8)
	want, err := single.model.Eval(single.ex, b)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{0, 2, 2, 5, 8}
	sums := make([]float64, 4)
	onRanks(t, 4, cfg, tensor.FP32, 8, func(m *member) error {
		r := m.comm.Rank()
		loss, err := m.model.Eval(m.ex, b.part(cuts[r], cuts[r+1]))
		sums[r] = loss.Sum
		for _, route := range m.model.Routings() {
			if slices.Max(route.Load) > 0 {
				err = fmt.Errorf("layer %d: evaluation counted a load of %v", route.Layer, route.Load)
			}
		}
		return err
	})
	if got := sums[0] + sums[1] + sums[2] + sums[3]; !(math.Abs(got-want.Sum) <= 1e-6*want.Sum) || sums[1] != 0 {
		t.Errorf("cross-entropy of the ranks is %v, in all %v, want %v", sums, got, want.Sum)
	}
}

func TestRunsRepeatBitForBit(t *testing.T) {
	cfg := spreadModel()
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		for _, ranks := range []int{1, 4} {
			t.Run(fmt.Sprintf("%v/np%d", dtype, ranks), func(t *testing.T) {
				b := batchOf(13, 8, 8, cfg.Vocab)
				first := train(t, cfg, dtype, b, even(8, ranks), 8)
				again := train(t, cfg, dtype, b, even(8, ranks), 8)
				for r := range ranks {
					for name, g := range first.raw[r] {
						if !slices.Equal(g, again.raw[r][name]) {
							t.Errorf("rank %d: gradient of %s differs between two runs", r, name)
						}
					}
				}
				other := train(t, cfg, dtype, batchOf(14, 8, 8, cfg.Vocab), even(8, ranks), 8)
				if slices.Equal(other.raw[0]["lm_head.weight"], first.raw[0]["lm_head.weight"]) {
					t.Error("another batch gives the same gradient")
				}
			})
		}
	}
}

// BF16 is FP32 but for roundings of 2^-9: large errors mean that a conversion is missing.
func TestBF16FollowsFP32(t *testing.T) {
	cfg := with(spreadModel(), func(c *Config) { c.Experts, c.TopK, c.Groups, c.TopKGroups = 4, 4, 1, 1 }) // no choice that rounding could change
	b := batchOf(15, 8, 8, cfg.Vocab)
	fp32 := train(t, cfg, tensor.FP32, b, even(8, 1), 8)
	bf16 := train(t, cfg, tensor.BF16, b, even(8, 1), 8)
	if d := math.Abs(bf16.loss.objective(cfg)/fp32.loss.objective(cfg) - 1); !(d < 0.01) || d == 0 {
		t.Errorf("the loss is off by %.2g", d)
	}
	var worst float64
	for name, g := range fp32.grads {
		d := distance(bf16.grads[name], g)
		worst = max(worst, d)
		if !(d < 0.1) {
			t.Errorf("gradient of %s is off by %.2g of its length", name, d)
		}
	}
	t.Logf("worst gradient: off by %.2g", worst)
}
