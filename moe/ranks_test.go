package moe

// A model gives the same answers however its batch is spread over ranks.

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

// train runs passes over b and returns its loss, the gradients, those of replicated weights summed
// over the ranks, and the load of experts by layer. Rank r of the world has sequences [cuts[r],
// cuts[r+1]), in micro-batches of up to micro sequences.
func train(t *testing.T, cfg Config, dtype tensor.DType, b Batch, cuts []int, micro int) (summed, map[int][]int64) {
	t.Helper()
	ranks, passes := len(cuts)-1, 0
	out, loads := summed{grads: map[string][]float32{}}, map[int][]int64{}
	for r := range ranks {
		passes = max(passes, (cuts[r+1]-cuts[r]+micro-1)/micro)
	}
	var mu sync.Mutex
	onRanks(t, ranks, cfg, dtype, b.Seq, func(m *member) error {
		r := m.comm.Rank()
		var all Loss
		for i := range passes {
			lo := min(cuts[r]+i*micro, cuts[r+1])
			loss, err := m.model.Train(m.ex, b.part(lo, min(lo+micro, cuts[r+1])))
			if err != nil {
				return err
			}
			all.Add(loss)
		}
		mu.Lock()
		defer mu.Unlock()
		out.loss.Add(all)
		for name, g := range m.gradients() {
			if out.grads[name] == nil {
				out.grads[name] = make([]float32, len(g))
			} else if m.shared(name) {
				continue // it has the tokens of all ranks
			}
			tensor.AddScaled(out.grads[name], 1, g)
		}
		for _, r := range m.model.Routings() {
			if loads[r.Layer] == nil {
				loads[r.Layer] = make([]int64, len(r.Load))
			}
			for e, n := range r.Load {
				loads[r.Layer][e] += n
			}
		}
		return nil
	})
	return out, loads
}

// Ranks with uneven parts of a batch, or none, agree with one rank, to rounding.
func TestUnevenRanksAgree(t *testing.T) {
	cfg := spreadModel()
	b := batchOf(11, 8, 8, cfg.Vocab)
	want, wantLoads := train(t, cfg, tensor.FP32, b, []int{0, 8}, 8)
	if want.loss.Tokens != 64 || want.loss.AheadTokens != 56 || want.loss.Balance <= 0 {
		t.Fatalf("measured %+v", want.loss)
	}
	for _, c := range []struct {
		cuts  []int
		micro int
	}{
		{[]int{0, 1, 4, 6, 8}, 8}, {[]int{0, 0, 3, 3, 8}, 8}, {[]int{0, 0, 0, 0, 0, 8, 8, 8, 8}, 8},
		{[]int{0, 8}, 3}, {[]int{0, 4, 8}, 1}, {[]int{0, 2, 8}, 2},
	} {
		got, loads := train(t, cfg, tensor.FP32, b, c.cuts, c.micro)
		what := fmt.Sprintf("ranks with sequences %v, passes of %d", c.cuts, c.micro)
		for _, l := range [][2]float64{{got.loss.Sum, want.loss.Sum}, {got.loss.Ahead, want.loss.Ahead}, {got.loss.Balance, want.loss.Balance}} {
			if !(math.Abs(l[0]-l[1]) <= 1e-6*math.Abs(l[1])) {
				t.Errorf("%s: losses %+v, want %+v", what, got.loss, want.loss)
			}
		}
		if got.loss.Tokens != want.loss.Tokens || got.loss.AheadTokens != want.loss.AheadTokens || !maps.EqualFunc(loads, wantLoads, slices.Equal) {
			t.Errorf("%s: %+v with loads %v, want %+v with %v", what, got.loss, loads, want.loss, wantLoads)
		}
		for name, g := range want.grads {
			if d := distance(got.grads[name], g); !(d < 1e-5) {
				t.Errorf("%s: the gradient of %s is off by %.2g of its length", what, name, d)
			}
		}
	}
}

// BF16 is FP32 but for roundings of 2^-9: large errors mean that a conversion is missing.
func TestBF16FollowsFP32(t *testing.T) {
	cfg := with(spreadModel(), func(c *Config) { c.Experts, c.TopK, c.Groups, c.TopKGroups = 4, 4, 1, 1 }) // no choice that rounding could change
	b := batchOf(15, 8, 8, cfg.Vocab)
	fp32, _ := train(t, cfg, tensor.FP32, b, []int{0, 8}, 8)
	bf16, _ := train(t, cfg, tensor.BF16, b, []int{0, 8}, 8)
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
