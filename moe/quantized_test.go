package moe

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// TestSharedInput: a layer that shares the input of another computes what it would compute alone,
// and quantizes nothing.
func TestSharedInput(t *testing.T) {
	const rows, n, k = 50, 64, 96
	for _, how := range []*Recipe{inMXFP8, highWgrad, inMXINT8, inNVFP4} {
		results := func(share bool) (all [][]byte, shown int) {
			ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(7, 8))
			x := gaussians(ex, rng, rows, k)
			var layers [2]linear
			var states [2]linearState
			inputs := [2]*activation{{Tensor: x}, {Tensor: x}}
			if share {
				inputs[1] = inputs[0]
			}
			p := &passState{train: true, batch: Batch{Seq: rows}}
			count := &operands{observer: func(q Quantized) {
				if q.Operand == Input {
					shown++
				}
			}}
			for i := range layers {
				l := &layers[i]
				l.mx = &mxLinear{Recipe: *how, operands: count}
				l.W, l.Grad = gaussians(ex, rng, n, k), tensor.New(tensor.FP32, n, k)
				l.passes, l.owner = newSumTree(l.Grad), ownSums{}
				l.mx.allocate(nil, l.W)
				l.mx.refresh(ex, l.W)
			}
			for i := range layers {
				all = append(all, layers[i].forward(p.forwardPhase(ex), &ex.Arena, inputs[i], &states[i]).Bytes())
			}
			for i := range layers {
				dy := activation{Tensor: gaussians(ex, rng, rows, n)}
				dx := layers[i].backward(p.fusedPhase(ex), &ex.Arena, dy, &states[i])
				all = append(all, dx.Bytes(), layers[i].Grad.Bytes())
			}
			return all, shown
		}
		want, alone := results(false)
		got, shared := results(true)
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%+v: result %d has other bits where the input is shared", how, i)
			}
		}
		if alone != 2 || shared != 1 {
			t.Errorf("%+v: inputs were quantized %d times, and %d times where they are one", how, alone, shared)
		}
	}
}

// TestSharingNeedsOneFormat: layers share an input only if they quantize it in the same way, or one
// of them does not quantize it.
func TestSharingNeedsOneFormat(t *testing.T) {
	plain, e4m3, int8 := &linear{}, &linear{mx: &mxLinear{Recipe: *inMXFP8}}, &linear{mx: &mxLinear{Recipe: *inMXINT8}}
	for _, c := range []struct {
		first, second *linear
		panics        bool
	}{{e4m3, plain, false}, {plain, e4m3, false}, {e4m3, e4m3, false}, {int8, e4m3, true}} {
		ex := tensor.NewExec()
		x, p := &activation{Tensor: gaussians(ex, rand.New(rand.NewPCG(1, 2)), 8, 32)}, (&passState{}).forwardPhase(ex)
		forward := func(l *linear) {
			l.W = tensor.New(tensor.BF16, 32, 32)
			if l.mx != nil {
				l.mx.allocate(nil, l.W)
				l.mx.refresh(ex, l.W)
			}
			l.forward(p, &ex.Arena, x, &linearState{})
		}
		forward(c.first)
		func() {
			defer func() {
				if panicked := recover() != nil; panicked != c.panics {
					t.Errorf("%+v after %+v: panics %v, want %v", c.second.mx, c.first.mx, panicked, c.panics)
				}
			}()
			forward(c.second)
		}()
	}
}

// TestEvaluationQuantizesOneWay: without a backward pass no product reads the input along its
// columns.
func TestEvaluationQuantizesOneWay(t *testing.T) {
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(9, 10))
	l := linear{mx: &mxLinear{Recipe: *inMXFP8}}
	l.W = gaussians(ex, rng, 64, 96)
	l.mx.allocate(nil, l.W)
	l.mx.refresh(ex, l.W)
	x := gaussians(ex, rng, 40, 96)
	forward := func(train bool) ([]byte, *activation) {
		in := &activation{Tensor: x}
		return l.forward((&passState{train: train}).forwardPhase(ex), &ex.Arena, in, &linearState{}).Bytes(), in
	}
	want, evaluated := forward(false)
	got, trained := forward(true)
	if evaluated.cols.Codes.Valid() || !trained.cols.Codes.Valid() {
		t.Error("evaluation quantized the input along its columns, or training did not")
	}
	if !bytes.Equal(got, want) {
		t.Error("evaluation and training give different products")
	}
}

// TestAccepts: codes that came with the rows replace those of the recipe only if they are the same.
func TestAccepts(t *testing.T) {
	received := mx.New(nil, mx.E4M3, mx.AlongRows, 1, 32)
	for _, c := range []struct {
		codes mx.Tensor
		by    mx.Cast
		want  bool
	}{
		{received, mx.Cast{Format: mx.E4M3}, true},
		{received, mx.Cast{Format: mx.E4M3, Rounding: mx.Stochastic}, false},
		{received, mx.Cast{Format: mx.E5M2}, false},
		{mx.Tensor{}, mx.Cast{Format: mx.E4M3}, false},
	} {
		if got := accepts(c.codes, c.by); got != c.want {
			t.Errorf("%v %v takes the place of %v %v: %v", c.codes.Format, mx.Nearest, c.by.Format, c.by.Rounding, got)
		}
	}
}
