package moe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// smallSizes give tiny models several blocks of 64 tokens, chunks of 16 rows and more, and groups
// of rows or parts of sequences.
func smallSizes(rows int) outputSizes {
	return outputSizes{block: 64, wholeVocab: 100, tile: 1 << 21, logits: 1 << 20, chunk: 16, gradients: 1, rows: rows, most: 1 << 20}
}

// headModel has an odd vocabulary of four blocks, the last one of a few tokens.
func headModel(mtp int) Config {
	return with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = 201, mtp })
}

// Ranks divide the weight's gradient by whole blocks, the last one small, in one round or
// several, with a result for all ranks. If a rank has more sequences than another, or none, the
// result differs by rounding only.
func TestSharedHeadGradient(t *testing.T) {
	const seq = 24
	cfg := with(tiny(), func(c *Config) { c.Vocab = 601 })
	even, odd := batchOf(19, 8, seq, cfg.Vocab), batchOf(20, 3, seq, cfg.Vocab)
	for _, rows := range []int{4 * seq, seq, 16} {
		sizes := smallSizes(rows)
		sizes.block = 128
		want, near := way{}.train(t, cfg, sizes, "bf16", even), way{}.train(t, cfg, sizes, "fp32", odd)
		for _, sizes.shared = range []int{0, 1 << 20} {
			for _, w := range []way{{ranks: 2}, {ranks: 8}} {
				what := fmt.Sprintf("%d rows, at most %d, %+v", rows, sizes.shared, w)
				w.train(t, cfg, sizes, "bf16", even).equals(t, what, want)
				got := w.train(t, cfg, sizes, "fp32", odd)
				if d := distance(got.grads["lm_head.weight"], near.grads["lm_head.weight"]); d > 1e-6 {
					t.Errorf("%s, 3 sequences: the gradient is off by %.2g", what, d)
				}
			}
		}
	}
}

// referenceHead computes the loss of rows x and the gradients of x and w in float64.
func referenceHead(x, w [][]float64, targets []int32, scale float64) (loss float64, dx, dw []float64) {
	dim := len(w[0])
	dx, dw = make([]float64, len(x)*dim), make([]float64, len(w)*dim)
	for r, row := range x {
		if targets[r] < 0 {
			continue
		}
		logits, z := make([]float64, len(w)), 0.0
		for v := range w {
			for k := range dim {
				logits[v] += row[k] * w[v][k]
			}
			z += math.Exp(logits[v])
		}
		loss += math.Log(z) - logits[targets[r]]
		for v := range w {
			d := math.Exp(logits[v]) / z
			if v == int(targets[r]) {
				d--
			}
			for k := range dim {
				dx[r*dim+k] += scale * d * w[v][k]
				dw[v*dim+k] += scale * d * row[k]
			}
		}
	}
	return loss, dx, dw
}

// The head alone, in blocks and as a single block, against float64. Rows without a target take
// part.
func TestHeadAgainstReference(t *testing.T) {
	const sequences, seq, dim, scale = 3, 41, 64, 0.25
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		for _, sizes := range []outputSizes{defaultOutputSizes(), smallSizes(1000), smallSizes(16)} {
			h := newHeadCase(dtype, sizes, sequences, seq, dim, 201)
			loss, dx, dw := h.run(scale)
			wantLoss, wantDX, wantDW := referenceHead(h.rows(h.x), h.rows(h.o.weight.W), h.targets, scale)
			bound := 3e-6
			if dtype == tensor.BF16 {
				bound = 4e-3 // d and dx are rounded to 8 bits
			}
			if math.Abs(loss/wantLoss-1) > 1e-6 {
				t.Errorf("%v, blocks of %d: loss %v, want %v", dtype, sizes.blockSize(201), loss, wantLoss)
			}
			offX, offW := distance64(dx, wantDX), distance64(dw, wantDW)
			t.Logf("%v, blocks of %d, %d rows held: dx is off by %.3g, dw by %.3g", dtype, sizes.blockSize(201), sizes.rows, offX, offW)
			if offX > bound || offW > bound {
				t.Errorf("%v, blocks of %d: dx is off by %.2g, dw by %.2g", dtype, sizes.blockSize(201), offX, offW)
			}
		}
	}
}

// headCase is an output with the rows that it predicts from.
type headCase struct {
	ex      *tensor.Exec
	o       output
	x       tensor.Tensor
	targets []int32
	seq     int
}

func newHeadCase(dtype tensor.DType, sizes outputSizes, sequences, seq, dim, vocab int) *headCase {
	h := &headCase{ex: tensor.NewExec(), seq: seq}
	fill := func(seed uint64, rows int, scale float32) tensor.Tensor {
		from, to := tensor.New(tensor.FP32, rows, dim), tensor.New(dtype, rows, dim)
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range from.F32() {
			from.F32()[i] = scale * float32(rng.NormFloat64())
		}
		tensor.Convert(nil, to.Mat(), from.Mat())
		return to
	}
	h.o = output{weight: weight{W: fill(1, vocab, 0.3), Grad: tensor.New(tensor.FP32, vocab, dim), rows: [2]int{0, vocab}}, sizes: sizes}
	h.o.weight.passes = newSumTree(h.o.weight.Grad)
	h.x = fill(2, sequences*seq, 1)
	for i := range sequences * seq {
		h.targets = append(h.targets, int32(i*67%(vocab+1))-1)
	}
	return h
}

// run trains one pass.
func (h *headCase) run(scale float32) (loss float64, dx, dw []float32) {
	pass := &passState{train: true, batch: Batch{Seq: h.seq}, sequences: make([]sequenceLoss, len(h.targets)/h.seq)}
	p := phase{passState: pass, ex: h.ex, scratch: &h.ex.Arena}
	all := []prediction{{targets: h.targets, scale: scale, x: h.x, dx: tensor.New(h.x.DType(), h.x.Dims()...)}}
	h.o.train(p, all)
	for i := range pass.sequences {
		loss += *pass.sequences[i].of(false)
	}
	out := tensor.New(tensor.FP32, h.x.Dims()...)
	tensor.Convert(nil, out.Mat(), all[0].dx.Mat())
	return loss, out.F32(), h.o.weight.Grad.F32()
}

// rows returns the rows of a matrix in float64.
func (h *headCase) rows(t tensor.Tensor) (rows [][]float64) {
	wide := tensor.New(tensor.FP32, t.Dims()...)
	tensor.Convert(nil, wide.Mat(), t.Mat())
	for r := range t.Dim(0) {
		var row []float64
		for _, x := range wide.Index(r).F32() {
			row = append(row, float64(x))
		}
		rows = append(rows, row)
	}
	return rows
}

// distance64 returns the length of x - want over that of want.
func distance64(x []float32, want []float64) float64 {
	var diff, all float64
	for i, w := range want {
		diff += (float64(x[i]) - w) * (float64(x[i]) - w)
		all += w * w
	}
	return math.Sqrt(diff / all)
}

// TestHeadBySum: another sum changes the loss and both gradients of the head.
func TestHeadBySum(t *testing.T) {
	for _, sizes := range []outputSizes{defaultOutputSizes(), smallSizes(16)} {
		var loss [2]float64
		var dx, dw [2][]float32
		for i, sum := range []mx.Sum{mx.SumFP32, mx.SumH100} {
			h := newHeadCase(tensor.BF16, sizes, 3, 40, 300, 201)
			h.o.sum = sum
			loss[i], dx[i], dw[i] = h.run(0.01)
		}
		if off := math.Abs(loss[1]/loss[0] - 1); off == 0 || off > 1e-4 {
			t.Errorf("the losses are %v by fp32 and h100: want others that are close", loss)
		}
		for name, both := range map[string][2][]float32{"dx": dx, "dw": dw} {
			if slices.Equal(both[0], both[1]) {
				t.Errorf("%s is the same by fp32 and h100", name)
			}
		}
	}
}
