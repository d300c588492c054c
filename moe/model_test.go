package moe

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

func TestObserve(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers = 1 })
	m := alone(t, cfg, tensor.BF16, 8)
	rows, hidden := 16, []int{16, cfg.Dim}
	want := map[string][]int{}
	for _, layer := range []string{"layer0_", "layer1_", "layer2_"} {
		for _, name := range []string{"attention", "mlp_in", "mlp", "out"} {
			want[layer+name] = hidden
		}
		if layer != "layer0_" {
			want[layer+"topk_index"], want[layer+"topk_weight"] = []int{rows, cfg.TopK}, []int{rows, cfg.TopK}
			want[layer+"router_logits"] = []int{rows, cfg.Experts}
		}
	}
	for name, pass := range map[string]func(*tensor.Exec, Batch) (Loss, error){"Train": m.model.Train, "Eval": m.model.Eval} {
		got := map[string][]int{}
		m.model.Observe(func(name string, x tensor.Tensor) {
			got[name] = x.Dims()
			dtype := tensor.BF16
			switch {
			case strings.HasSuffix(name, "_index"):
				dtype = tensor.INT32
			case strings.HasSuffix(name, "_weight"), strings.HasSuffix(name, "_logits"):
				dtype = tensor.FP32
			}
			if x.DType() != dtype {
				t.Errorf("%s is %v, want %v", name, x.DType(), dtype)
			}
		})
		if _, err := pass(m.ex, batchOf(1, 2, 8, cfg.Vocab)); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s showed %v, want %v", name, got, want)
		}
		m.model.Observe(nil)
		clear(got)
		if _, err := pass(m.ex, batchOf(1, 2, 8, cfg.Vocab)); err != nil || len(got) > 0 {
			t.Errorf("%s showed %v after the end of it, error %v", name, got, err)
		}
	}
}

// crossEntropy returns the sum of -log softmax(logits)[target] in float64.
func crossEntropy(logits [][]float32, targets []int32) (all float64) {
	for r, target := range targets {
		if target < 0 {
			continue
		}
		var z float64
		for _, x := range logits[r] {
			z += math.Exp(float64(x))
		}
		all += math.Log(z) - float64(logits[r][target])
	}
	return all
}

func TestLogitsImplyTheLoss(t *testing.T) {
	for name, cfg := range map[string]Config{"small": tiny(), "in blocks": with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = 20_001, 1 })} {
		m := alone(t, cfg, tensor.FP32, 8)
		b := batchOf(2, 5, 8, cfg.Vocab)
		loss, err := m.model.Eval(m.ex, b)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := m.logits(b.Inputs, 8)
		if err != nil {
			t.Fatal(err)
		}
		if got := crossEntropy(logits, b.Targets); math.Abs(loss.Sum/got-1) > 1e-6 || loss.Tokens != 40 {
			t.Errorf("%s: Eval says %.9g nats of %d tokens, the logits %.9g of 40", name, loss.Sum, loss.Tokens, got)
		}
	}
}

// A token sees none that come after it, and none of other sequences.
func TestCausality(t *testing.T) {
	cfg := with(tiny(), stretched)
	m := alone(t, cfg, tensor.FP32, 8)
	inputs, _ := text(6, 3, 8, cfg.Vocab)
	logits := func() [][]float32 {
		x, err := m.logits(inputs, 8)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	before := logits()
	const changed = 12 // position 4 of the second sequence
	inputs[changed] = (inputs[changed] + 1) % int32(cfg.Vocab)
	after := logits()
	for tok := range inputs {
		same := slices.Equal(before[tok], after[tok])
		if reached := tok >= changed && tok < 16; same == reached {
			t.Errorf("token %d: logits unchanged is %t after token %d changed", tok, same, changed)
		}
	}
}

// A model that is not trained computes the same bits without any gradients, or weights quantized
// for them.
func TestNewInference(t *testing.T) {
	cfg, c := decodable(), collective.NewWorld(1).Comm(0)
	for _, p := range Precisions() {
		trained, err := quantizedMember(c, cfg, p.Name, 8)
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewInference(cfg, p, 8, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		spread(m)
		size := func(m *Model) (bytes int) {
			for _, g := range m.Groups {
				g.Refresh(trained.ex)
				for w := range g.Weights {
					bytes += len(w.Bytes())
				}
			}
			return bytes
		}
		if one, both := size(m), size(trained.model); one > both || (one < both) != (p.Quantizes() && !(p.Linears != nil && p.Linears.sharesWeight())) {
			t.Errorf("%s: %d bytes of weights, %d in training", p.Name, one, both)
		}
		b := batchOf(1, 2, 8, cfg.Vocab)
		want, err := trained.model.Eval(trained.ex, b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Eval(tensor.NewExec(), b); err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", p.Name, got, err, want)
		}
		for _, g := range m.Groups {
			if g.Grad.Valid() || g.Params[0].Grad.Valid() {
				t.Errorf("%s: group %s has gradients", p.Name, g.Name)
			}
		}
	}
	_, err := NewInference(cfg, Unquantized(tensor.BF16), cfg.MaxPositions+1, c, nil)
	contains(t, err, "sequence length is 257")
}

// The losses of the sequences of a pass add up to that of all.
func TestSequenceLosses(t *testing.T) {
	cfg := spreadModel()
	m := alone(t, cfg, tensor.FP32, 8)
	b := batchOf(3, 3, 8, cfg.Vocab)
	for name, pass := range map[string]func(*tensor.Exec, Batch) (Loss, error){"Train": m.model.Train, "Eval": m.model.Eval} {
		all, err := pass(m.ex, b)
		if err != nil {
			t.Fatal(err)
		}
		var each []float64
		var sum float64
		for i, nats := range m.model.SequenceLosses {
			if i != len(each) {
				t.Errorf("%s: sequence %d comes after %d", name, i, len(each))
			}
			each, sum = append(each, nats), sum+nats
		}
		if len(each) != 3 || sum != all.Sum {
			t.Errorf("%s: %v, in all %v", name, each, all.Sum)
		}
		one, err := pass(m.ex, b.part(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(one.Sum-each[1]) > 1e-4 {
			t.Errorf("%s: sequence 1 has loss %v, alone %v", name, each[1], one.Sum)
		}
		for i := range m.model.SequenceLosses {
			if i > 0 {
				t.Errorf("%s: there are losses of an earlier pass", name)
			}
		}
	}
}

// The first pass after ZeroGrad sets all gradients, whatever stood there, also those of experts
// without rows; the second adds to them.
func TestZeroGrad(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.MTPLayers, c.QRank, c.TopK = 1, 32, 2 })
	for _, precision := range []string{"fp32", "bf16", "mxfp8", "mxint8"} {
		for name, c := range map[string]struct {
			cfg            Config
			sequences, seq int
		}{
			"no tokens": {cfg, 0, 8}, "one token": {cfg, 1, 1}, "three sequences": {cfg, 3, 32}, "documents": {cfg, 4, 13},
			"in chunks": {with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = 180_000, 1 }), 2, 48},
		} {
			t.Run(precision+"/"+name, func(t *testing.T) {
				if c.cfg.Vocab > cfg.Vocab && precision != "bf16" {
					t.Skip("the output is multiplied in one type by all recipes")
				}
				m, err := quantizedMember(collective.NewWorld(1).Comm(0), c.cfg, precision, c.seq)
				if err != nil {
					t.Fatal(err)
				}
				train := func() map[string][]float32 {
					if _, err := m.model.Train(m.ex, batchOf(1, c.sequences, c.seq, c.cfg.Vocab)); err != nil {
						t.Fatal(err)
					}
					return m.gradients()
				}
				want := train()
				for _, g := range m.model.Groups {
					grad := g.Grad.F32()
					for i := range grad {
						grad[i] = float32(math.NaN())
					}
				}
				m.model.ZeroGrad()
				got := train()
				for _, g := range m.model.Groups {
					for i, x := range g.Grad.F32() {
						if x != x {
							t.Fatalf("element %d of the gradients of group %s is what it was", i, g.Name)
						}
					}
				}
				for name, g := range got {
					if !slices.Equal(g, want[name]) {
						t.Errorf("the gradient of %s has other bits after another step's", name)
					}
				}
				for name, g := range train() {
					twice := slices.Clone(want[name])
					for i := range twice {
						twice[i] *= 2
					}
					if d := distance(g, twice); d > 1e-5 {
						t.Errorf("the gradient of %s by two passes is off by %.2g", name, d)
					}
				}
			})
		}
	}
}
