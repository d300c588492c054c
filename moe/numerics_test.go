package moe

// How far MXFP8 is from BF16, in dB of signal to quantization noise, held to the thresholds of
// PyTorch's torchao for the same computations (test_mxfp8_linear.py, test_mxfp8_grouped_mm.py,
// test_training.py).

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// holds logs a ratio and reports one that is too low.
func holds(t *testing.T, what string, got, want tensor.Matrix, dB float64) {
	t.Helper()
	sqnr := -20 * math.Log10(distance(elements(got), elements(want)))
	t.Logf("%s: %.1f dB, at least %.0f", what, sqnr, dB)
	if !(sqnr >= dB) {
		t.Errorf("%s: SQNR %.1f dB, at least %.0f expected", what, sqnr, dB)
	}
}

// The three products of a linear layer, for all rows and for groups of them.
func TestLinearSQNR(t *testing.T) {
	const rows, n, k = 512, 256, 384
	for _, how := range []*Recipe{inMXFP8, highWgrad} {
		for _, ends := range [][]int32{nil, {100, 100, 356, rows}} {
			t.Run(fmt.Sprintf("wgrad%v-groups%d", how.Wgrad.Quantizes(), len(ends)), func(t *testing.T) {
				ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(11, 12))
				w := gaussians(ex, rng, max(len(ends), 1)*n, k)
				if ends != nil {
					w = w.Reshape(len(ends), n, k)
				}
				x, dy := gaussians(ex, rng, rows, k), gaussians(ex, rng, rows, n)
				var y, dx [2]tensor.Tensor
				var dw [2]tensor.Matrix
				for i, form := range []*mxLinear{nil, {Recipe: *how}} {
					l := linear{mx: form, weight: weight{owner: ownSums{}}}
					l.W, l.Grad = w, tensor.New(tensor.FP32, w.Dims()...)
					l.passes = newSumTree(l.Grad)
					if form != nil {
						form.allocate(nil, w)
						form.refresh(ex, w)
					}
					p, s := &passState{train: true, batch: Batch{Seq: 64}}, linearState{}
					y[i] = l.forward(p.forwardPhase(ex), &ex.Arena, &activation{Tensor: x, rowGroups: rowGroups{ends: ends}}, &s)
					dx[i] = l.backward(p.fusedPhase(ex), &ex.Arena, activation{Tensor: dy}, &s)
					dw[i] = l.Grad.Mat()
				}
				holds(t, "y", y[1].Mat(), y[0].Mat(), 27)
				holds(t, "dx", dx[1].Mat(), dx[0].Mat(), 25)
				if how.Wgrad.Quantizes() {
					holds(t, "dw", dw[1], dw[0], 24)
				} else {
					holds(t, "dw", dw[1], dw[0], 34)
				}
			})
		}
	}
}

// layerPass is what a whole Mixture-of-Experts layer gave: its output, and the gradients of its
// input and of its parameters for a mean squared distance of the output to ones.
type layerPass struct {
	out, dx tensor.Matrix
	grads   map[string]tensor.Matrix
}

func trainLayer(t *testing.T, cfg Config, precision string) layerPass {
	t.Helper()
	p, err := PrecisionByName(precision)
	if err != nil {
		t.Fatal(err)
	}
	model, err := New(cfg, p, 64, collective.NewWorld(1).Comm(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(13, 14))
	for _, param := range model.Params() {
		set(param, param.draw(param.Len(), 5))
	}
	for _, g := range model.Groups {
		g.Refresh(ex)
	}
	const tokens = 1024
	layer := model.blocks[1].ffn.(*moeLayer)
	run, s := &passState{arena: new(tensor.Arena), train: true, batch: Batch{Seq: 64, GlobalSequences: tokens / 64}}, feedState{}
	x := gaussians(ex, rng, tokens, cfg.Dim)
	out, err := layer.forward(run.forwardPhase(ex), x, &s)
	if err != nil {
		t.Fatal(err)
	}
	dy, slope := like(&ex.Arena, out), ex.New(tensor.FP32, tokens, cfg.Dim)
	tensor.Convert(ex, slope.Mat(), out.Mat())
	for i, v := range slope.F32() {
		slope.F32()[i] = 2 * (v - 1) / float32(out.Len())
	}
	tensor.Convert(ex, dy.Mat(), slope.Mat())
	dx, err := layer.backward(run.fusedPhase(ex), dy, &s)
	if err != nil {
		t.Fatal(err)
	}
	got := layerPass{out.Mat(), dx.Mat(), map[string]tensor.Matrix{}}
	for _, l := range []struct {
		name string
		of   *linear
	}{
		{"experts.gate_up_proj", &layer.routed.gateUp}, {"experts.down_proj", &layer.routed.down},
		{"shared_experts.gate_up_proj", &layer.shared.network.gateUp}, {"shared_experts.down_proj", &layer.shared.network.down},
		{"gate", &layer.router.gate},
	} {
		got.grads[l.name] = l.of.Grad.Mat()
	}
	return got
}

// A whole layer with the weights that training begins with. torchao quantizes the routed experts
// alone, as mxfp8-experts does, and weighs one for each token by its score. Where the shared expert
// is quantized too, nothing dilutes the noise of the two products, of four quantized operands, that
// a gradient goes through.
func TestLayerSQNR(t *testing.T) {
	cfg := with(quantizable(256, 256), func(c *Config) { c.MTPLayers, c.TopK, c.RouteScale, c.NormTopK = 0, 1, 1, false })
	want := trainLayer(t, cfg, "bf16")
	for precision, least := range map[string]struct{ out, dx, grads float64 }{
		"mxfp8-experts":    {28, 29, 21},
		"mxfp8":            {23, 23, 21},
		"mxfp8-wgrad-bf16": {23, 23, 22},
	} {
		t.Run(precision, func(t *testing.T) {
			got := trainLayer(t, cfg, precision)
			holds(t, "output", got.out, want.out, least.out)
			holds(t, "gradient of the input", got.dx, want.dx, least.dx)
			for name, g := range got.grads {
				holds(t, "gradient of "+name, g, want.grads[name], least.grads)
			}
		})
	}
}
