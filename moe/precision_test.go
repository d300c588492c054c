package moe

// Quantized recipes: every product of a layer runs on the operands that its recipe names, and a
// whole model follows BF16 as closely as its formats allow.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// gaussians returns a BF16 matrix of normal numbers.
func gaussians(ex *tensor.Exec, rng *rand.Rand, dims ...int) tensor.Tensor {
	wide, t := ex.New(tensor.FP32, dims...), ex.New(tensor.BF16, dims...)
	for i := range wide.F32() {
		wide.F32()[i] = float32(rng.NormFloat64())
	}
	tensor.Convert(ex, t.Mat(), wide.Mat())
	return t
}

// dequantized returns x as its codes in direction d mean it, each group of rows for itself, or x
// itself if it is not quantized.
func dequantized(ex *tensor.Exec, x tensor.Matrix, by mx.Cast, d mx.Direction, ends []int32) tensor.Matrix {
	if !by.Quantizes() {
		return widened(ex, x)
	}
	q := mx.NewGrouped(ex, by.Format, d, x.Cols, ends)
	mx.Quantize(ex, q, x, by.Mode)
	out := ex.New(tensor.FP32, x.Rows, x.Cols).Mat()
	mx.Dequantize(ex, out, q)
	return out
}

// TestQuantizedLinear holds the three products of a layer, with ragged and empty groups, against
// FP32 products of the dequantized operands.
func TestQuantizedLinear(t *testing.T) {
	const groups, n, k = 4, 64, 96
	ends := []int32{40, 40, 41, 77}
	for name, how := range map[string]*Recipe{
		"mxfp8": inMXFP8,
		"e5m2, floor": inMXFP8.change(func(o Operand, c *mx.Cast) {
			c.Mode, c.Format = mx.FLOOR, map[bool]mx.Format{true: mx.E5M2, false: mx.E4M3}[o == Gradient]
		}),
		"high wgrad":           highWgrad,
		"mxint8":               inMXINT8,
		"nvfp4":                inNVFP4,
		"fp8 in blocks of 128": inFP8Blocks,
		"backward in mxfp4":    {Dgrad: inMXFP4.Dgrad, Wgrad: inMXFP4.Wgrad},
		"forward in mxfp4":     {Forward: inMXFP4.Forward},
		"six formats": {
			Forward: Product{cast(mx.E4M3), cast(mx.INT8)}, Dgrad: Product{cast(mx.E5M2), cast(mx.E3M2)}, Wgrad: Product{cast(mx.E2M3), cast(mx.NVFP4)},
		},
	} {
		for _, grouped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s-grouped%v", name, grouped), func(t *testing.T) {
				ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(3, 4))
				l := linear{mx: &mxLinear{Recipe: *how}, weight: weight{owner: ownSums{}}}
				at, weightGroups := []int32(nil), mx.EqualGroups(1, n)
				if grouped {
					at, weightGroups = ends, mx.EqualGroups(groups, n)
				}
				l.W, l.Grad = gaussians(ex, rng, len(weightGroups), n, k), tensor.New(tensor.FP32, len(weightGroups), n, k)
				if !grouped {
					l.W, l.Grad = l.W.Index(0), l.Grad.Index(0)
				}
				l.passes = newSumTree(l.Grad)
				x, dy := gaussians(ex, rng, 77, k), gaussians(ex, rng, 77, n)
				l.mx.allocate(nil, l.W)
				l.mx.refresh(ex, l.W)
				p, s := &passState{train: true, batch: Batch{Seq: 77}}, linearState{}
				y := l.forward(p.forwardPhase(ex), &ex.Arena, &activation{Tensor: x, rowGroups: rowGroups{ends: at}}, &s)
				dx := l.backward(p.fusedPhase(ex), &ex.Arena, activation{Tensor: dy}, &s)

				rowEnds := ends
				if !grouped {
					rowEnds = []int32{77}
				}
				flat := l.W.Mat()
				wRows := dequantized(ex, flat, how.Forward.Right, mx.AlongRows, weightGroups)
				wCols := dequantized(ex, flat, how.Dgrad.Right, mx.AlongCols, weightGroups)
				xRows := dequantized(ex, x.Mat(), how.Forward.Left, mx.AlongRows, rowEnds)
				dyRows := dequantized(ex, dy.Mat(), how.Dgrad.Left, mx.AlongRows, rowEnds)
				xWgrad := dequantized(ex, x.Mat(), how.Wgrad.Right, mx.AlongCols, rowEnds)
				dyWgrad := dequantized(ex, dy.Mat(), how.Wgrad.Left, mx.AlongCols, rowEnds)
				wantY, wantDX := ex.New(tensor.FP32, 77, n).Mat(), ex.New(tensor.FP32, 77, k).Mat()
				wantDW := tensor.New(tensor.FP32, len(weightGroups), n, k)
				lo := 0
				for g, end := range rowEnds {
					hi := int(end)
					w := func(m tensor.Matrix) tensor.Matrix { return m.RowSlice(g*n, (g+1)*n) }
					tensor.MatMul(ex, wantY.RowSlice(lo, hi), xRows.RowSlice(lo, hi), w(wRows).T())
					tensor.MatMul(ex, wantDX.RowSlice(lo, hi), dyRows.RowSlice(lo, hi), w(wCols))
					tensor.MatMul(ex, wantDW.Index(g).Mat(), dyWgrad.RowSlice(lo, hi).T(), xWgrad.RowSlice(lo, hi))
					lo = hi
				}
				near(t, "y", widened(ex, y.Mat()), wantY, 4e-3)
				near(t, "dx", widened(ex, dx.Mat()), wantDX, 4e-3)
				near(t, "dw", l.Grad.Mat(), wantDW.Mat(), 1e-5)
			})
		}
	}
}

func widened(ex *tensor.Exec, m tensor.Matrix) tensor.Matrix {
	out := ex.New(tensor.FP32, m.Rows, m.Cols).Mat()
	tensor.Convert(ex, out, m)
	return out
}

// near compares by relative distance; BF16 results carry their rounding.
func near(t *testing.T, name string, got, want tensor.Matrix, bound float64) {
	t.Helper()
	if d := distance(elements(got), elements(want)); !(d <= bound) {
		t.Errorf("%s is %.2e from the product of the dequantized operands, bound %.0e", name, d, bound)
	}
}

// elements copies an FP32 matrix.
func elements(m tensor.Matrix) []float32 {
	all := tensor.New(tensor.FP32, m.Rows, m.Cols)
	tensor.Convert(nil, all.Mat(), m)
	return all.F32()
}

// quantizable is a model whose dimensions are whole blocks, and one that leaves part blocks.
func quantizable(dim, inter int) Config {
	return with(tiny(), func(c *Config) {
		c.Dim, c.DenseInter, c.ExpertInter, c.KVRank, c.NopeDim, c.ValueDim = dim, inter, inter, 32, 16, 32
		c.TopK, c.MTPLayers = 8, 1 // all experts: no choice can flip
	})
}

// TestPrecisionsFollowBF16 runs every recipe over a whole model and compares its gradients with
// BF16's: E4M3 keeps about 4 significant bits of every operand, E2M1 2, INT8 7 of a block's
// largest.
func TestPrecisionsFollowBF16(t *testing.T) {
	least := map[string]float64{"fp32": 30, "mxfp8": 12, "mxfp8-experts": 18, "mxfp8-wgrad-bf16": 12, "mxint8": 20,
		"nvfp4": 3, "fp8-block": 12, "fp8-tensor": 12, "mxfp4": 2, "mxfp4-mxfp8": 1.5, "mxfp4-e2m1": 0.5, "mxfp6-e2m3": 11, "mxfp6-e3m2": 6}
	for _, cfg := range []Config{quantizable(64, 64), quantizable(72, 40)} {
		reference := trainedIn(t, cfg, "bf16")
		for _, p := range Precisions() {
			if p.Name == "bf16" {
				continue
			}
			t.Run(fmt.Sprintf("dim%d/%s", cfg.Dim, p.Name), func(t *testing.T) {
				got := trainedIn(t, cfg, p.Name)
				most := 0.03
				if p.Name == "nvfp4" || p.Name == "mxfp4-e2m1" {
					most = 0.08 // forward products have operands of 4 bits
				}
				if d := math.Abs(got.loss - reference.loss); d > most {
					t.Errorf("loss %.4f, BF16's %.4f", got.loss, reference.loss)
				}
				worst, name := math.Inf(1), ""
				for param, want := range reference.grads {
					if sqnr := -20 * math.Log10(distance(got.grads[param], want)); sqnr < worst {
						worst, name = sqnr, param
					}
				}
				t.Logf("least SQNR against BF16: %.1f dB, %s", worst, name)
				if worst < least[p.Name] {
					t.Errorf("gradient of %s: SQNR %.1f dB against BF16, at least %.0f expected", name, worst, least[p.Name])
				}
				if cfg.Dim > 64 {
					return
				}
				again := trainedIn(t, cfg, p.Name)
				for param, g := range got.grads {
					if !slices.Equal(g, again.grads[param]) {
						t.Fatalf("a second run gave another gradient of %s", param)
					}
				}
			})
		}
	}
}

// trained is what one pass in some precision gave.
type trained struct {
	loss  float64
	grads map[string][]float32
}

func trainedIn(t *testing.T, cfg Config, name string) trained {
	t.Helper()
	p, err := PrecisionByName(name)
	if err != nil {
		t.Fatal(err)
	}
	c := collective.NewWorld(1).Comm(0)
	model, err := New(cfg, p, 16, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	spread(model)
	for _, g := range model.Groups {
		g.Refresh(tensor.NewExec())
	}
	m := &member{c, tensor.NewExec(), model}
	loss, err := m.model.Train(m.ex, batchOf(1, 6, 16, cfg.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	return trained{loss.objective(cfg), m.gradients()}
}

// TestPrecisionWith: a changed recipe differs where it was asked to, and the built-in one stays.
func TestPrecisionWith(t *testing.T) {
	base, err := PrecisionByName("mxfp8-wgrad-bf16")
	if err != nil {
		t.Fatal(err)
	}
	e5m2 := mx.E5M2
	got := base.With(&e5m2, mx.FLOOR)
	xw, dy := mx.Cast{Format: mx.E4M3, Mode: mx.FLOOR}, mx.Cast{Format: mx.E5M2, Mode: mx.FLOOR}
	want := Recipe{Forward: Product{xw, xw}, Dgrad: Product{dy, xw}}
	if *got.Linears != want || *got.Experts != want {
		t.Errorf("%+v and %+v, want %+v", *got.Linears, *got.Experts, want)
	}
	if *base.Linears != *highWgrad {
		t.Errorf("the recipe itself changed to %+v", *base.Linears)
	}
	if plain := Unquantized(tensor.BF16).With(&e5m2, mx.EVEN); plain.Quantizes() {
		t.Errorf("an unquantized recipe became %+v", plain)
	}
}
