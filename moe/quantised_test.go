package moe

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// TestSharedInput: a layer that shares the input of another computes what it would compute alone, and quantises nothing.
func TestSharedInput(t *testing.T) {
	const rows, n, k = 50, 64, 96
	for _, how := range []MX{{}, {HighWgrad: true}, {Format: mx.INT8, Gradient: mx.INT8}} {
		results := func(share bool) (all [][]byte, second *linear) {
			ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(7, 8))
			x := gaussians(ex, rng, rows, k)
			var layers [2]linear
			p := &pass{ex: ex, train: true, batch: Batch{Seq: rows}}
			for i := range layers {
				l := &layers[i]
				l.mx = &mxLinear{MX: how}
				l.W, l.Grad = gaussians(ex, rng, n, k), tensor.New(tensor.FP32, n, k)
				l.mx.refresh(ex, l.W)
			}
			if share {
				layers[1].sharesInput(&layers[0])
			}
			for i := range layers {
				all = append(all, layers[i].forward(p, x, nil).Bytes())
			}
			for i := range layers {
				dx := layers[i].backward(p, gaussians(ex, rng, rows, n), x, nil)
				all = append(all, dx.Bytes(), layers[i].Grad.Bytes())
			}
			return all, &layers[1]
		}
		want, _ := results(false)
		got, second := results(true)
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%+v: result %d has other bits where the input is shared", how, i)
			}
		}
		if second.mx.own.rows.Codes.Valid() {
			t.Errorf("%+v: the second layer quantised its input too", how)
		}
	}
}

// TestSharingNeedsOneFormat: layers whose inputs are not quantised alike do not share them.
func TestSharingNeedsOneFormat(t *testing.T) {
	plain, e4m3, int8 := &linear{}, &linear{mx: &mxLinear{}}, &linear{mx: &mxLinear{MX: MX{Format: mx.INT8}}}
	for _, pair := range [][2]*linear{{e4m3, plain}, {plain, e4m3}, {int8, e4m3}} {
		if pair[0].sharesInput(pair[1]); pair[0].mx != nil && pair[0].mx.shared != nil {
			t.Errorf("%+v shares the input of %+v", pair[0], pair[1])
		}
	}
}

// TestEvaluationQuantisesOneWay: without a backward pass nobody needs the input along its columns.
func TestEvaluationQuantisesOneWay(t *testing.T) {
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(9, 10))
	l := linear{mx: &mxLinear{}}
	l.W = gaussians(ex, rng, 64, 96)
	l.mx.refresh(ex, l.W)
	x := gaussians(ex, rng, 40, 96)
	want := l.forward(&pass{ex: ex}, x, nil)
	if l.mx.own.cols.Codes.Valid() {
		t.Error("evaluation quantised the input along its columns")
	}
	if got := l.forward(&pass{ex: ex, train: true}, x, nil); !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("evaluation and training give different products")
	}
}
