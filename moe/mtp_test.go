package moe

import (
	"math"
	"slices"
	"testing"

	"spmoe/tensor"
)

// The module's input and loss in plain float64, from what Observe shows of the model's last layer
// and of the module's block: position i sees hidden state i and token i+1, and predicts token i+2.
func TestMTPAgainstFormulas(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers = 1 })
	m := alone(t, cfg, tensor.FP32, 8)
	b := batchOf(5, 2, 8, cfg.Vocab)
	seen := map[string][]float32{}
	m.model.Observe(func(name string, x tensor.Tensor) {
		if x.DType() == tensor.FP32 {
			seen[name] = slices.Clone(x.F32())
		}
	})
	loss, err := m.model.Eval(m.ex, b)
	if err != nil {
		t.Fatal(err)
	}
	weights := map[string][]float32{}
	for _, p := range m.model.Params() {
		weights[p.Name] = p.Work.F32()
	}
	row := func(x []float32, i int) []float32 { return x[i*cfg.Dim : (i+1)*cfg.Dim] }

	var want float64
	for i, next := range b.Targets {
		joined := slices.Concat(
			normalized(row(weights["model.embed_tokens.weight"], int(next)), weights["model.layers.2.enorm.weight"], cfg.NormEps),
			normalized(row(seen["layer1_out"], i), weights["model.layers.2.hnorm.weight"], cfg.NormEps))
		in := product64(weights["model.layers.2.eh_proj.weight"], joined)
		out := row(seen["layer2_out"], i)
		for j := range in {
			if got := float64(out[j] - row(seen["layer2_attention"], i)[j] - row(seen["layer2_mlp"], i)[j]); math.Abs(got-in[j]) > 1e-5 {
				t.Fatalf("token %d: element %d of the block's input is %.7g, want %.7g", i, j, got, in[j])
			}
		}
		if (i+1)%b.Seq == 0 {
			continue
		}
		logits := product64(weights["lm_head.weight"], normalized(out, weights["model.layers.2.shared_head.norm.weight"], cfg.NormEps))
		var z float64
		for _, x := range logits {
			z += math.Exp(x)
		}
		want += math.Log(z) - logits[b.Targets[i+1]]
	}
	if math.Abs(loss.MTP/want-1) > 1e-6 || loss.MTPTokens != 14 {
		t.Errorf("MTP loss %.9g of %d tokens, want %.9g of 14", loss.MTP, loss.MTPTokens, want)
	}
}

// normalized is RMSNorm in float64.
func normalized(x, weight []float32, eps float64) []float64 {
	var square float64
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) / math.Sqrt(square/float64(len(x))+eps) * float64(weight[i])
	}
	return y
}

// product64 is w·x for w: [n, len(x)].
func product64(w []float32, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += float64(w[i*len(x)+j]) * v
		}
	}
	return y
}
