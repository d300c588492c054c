package moe

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// TestProducts: the products of a layer outside a model have the bits of the layer, with and
// without groups of rows.
func TestProducts(t *testing.T) {
	const rows, n, k = 64, 32, 128
	for _, p := range Precisions() {
		if p.DType != tensor.BF16 {
			continue
		}
		for _, ends := range [][]int32{nil, {32, 32, rows}} {
			ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(5, 6))
			groups, class := max(len(ends), 1), Linear
			if ends != nil {
				class = Expert
			}
			x, dy := gaussians(ex, rng, rows, k), gaussians(ex, rng, rows, n)
			w := gaussians(ex, rng, groups*n, k)
			if ends != nil {
				w = w.Reshape(groups, n, k)
			}
			l := linear{weight: weight{W: w, Grad: tensor.New(tensor.FP32, w.Dims()...), owner: ownSums{}}}
			l.passes = newSumTree(l.Grad)
			if how := p.Of(class); how != nil {
				l.mx = &mxLinear{Recipe: *how}
				l.mx.allocate(nil, w)
				l.mx.refresh(ex, w)
			}
			pass := &passState{train: true, batch: Batch{Seq: rows, Seed: 3, Step: 4}}
			state := &linearState{}
			y := l.forward(pass.forwardPhase(ex), &ex.Arena, &activation{Tensor: x, rowGroups: rowGroups{ends: ends}}, state)
			dx := l.backward(pass.fusedPhase(ex), &ex.Arena, activation{Tensor: dy}, state)

			gotY, gotDX := tensor.New(tensor.BF16, rows, n), tensor.New(tensor.BF16, rows, k)
			alone := Products{X: x, W: w, DY: dy, Ends: ends, Y: gotY.Mat(), DX: gotDX.Mat(), Seed: 3, Step: 4}
			alone.DW = tensor.New(tensor.FP32, w.Dims()...)
			if err := alone.Compute(ex, p, mx.SumFP32); err != nil {
				t.Fatal(err)
			}
			for name, pair := range map[string][2]tensor.Tensor{"y": {gotY, y}, "dx": {gotDX, dx}, "dw": {alone.DW, l.Grad}} {
				if !bytes.Equal(pair[0].Bytes(), pair[1].Bytes()) {
					t.Errorf("%s, groups %v: %s has other bits than in the layer", p.Name, ends, name)
				}
			}
			if err := alone.Compute(ex, p, mx.SumH100); (err == nil) != (p.Of(class) == nil || p.Name == "fp8-block" || p.Name == "fp8-tensor") {
				t.Errorf("%s with the sums of an H100: %v", p.Name, err)
			}
		}
	}
}
