package moe

import (
	"bytes"
	"math/rand/v2"
	"testing"

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
