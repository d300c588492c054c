package mx_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// random returns numbers of several binades, the same on every architecture.
func random(seed uint64, rows, cols int) tensor.Tensor {
	x, r := tensor.New(tensor.BF16, rows, cols), rand.New(rand.NewPCG(seed, 0))
	for i := range x.BF16() {
		x.BF16()[i] = tensor.ToBFloat16(float32(r.IntN(2001)-1000) * float32(int(1)<<r.IntN(8)))
	}
	return x
}

func quantizeTo(ex *tensor.Exec, f mx.Format, d mx.Direction, x tensor.Tensor, ends []int32) mx.Tensor {
	q := mx.New(nil, f, d, x.Mat().Rows, x.Mat().Cols)
	if ends != nil {
		q = mx.NewGrouped(nil, f, d, x.Mat().Cols, ends)
	}
	mx.Quantize(ex, q, x.Mat(), mx.RCEIL)
	return q
}

// TestExactNVFP4 holds the SHA-256 of exact products of a layer: forward, gradient of the input,
// gradient of the weight in two spans, and the same for experts. Every tier, architecture and
// number of threads has this one.
func TestExactNVFP4(t *testing.T) {
	const want = "cc05bcd3e345c7110794555680ce6609ecf6a988110435639a65862979004a83"
	mx.EachTier(t, func(t *testing.T) {
		for _, threads := range []int{1, 3} {
			ex := tensor.NewParallelExec(threads)
			defer ex.Close()
			if got := exactProducts(ex); got != want {
				t.Errorf("%d threads: SHA-256 %s, want %s", threads, got, want)
			}
		}
	})
}

func exactProducts(ex *tensor.Exec) string {
	const m, n, k, groups = 96, 48, 80, 3
	ends := []int32{32, 32, m}
	x, dy, w, experts := random(1, m, k), random(2, m, n), random(3, n, k), random(4, groups*n, k)
	tile := quantizeTo(ex, mx.NVFP4Tile, mx.AlongRows, w, nil)
	tiles := quantizeTo(ex, mx.NVFP4Tile, mx.AlongRows, experts, mx.EqualGroups(groups, n))
	rows := func(x tensor.Tensor, ends []int32) mx.Tensor { return quantizeTo(ex, mx.NVFP4, mx.AlongRows, x, ends) }
	cols := func(x tensor.Tensor, ends []int32) mx.Tensor { return quantizeTo(ex, nvfp4RHT, mx.AlongCols, x, ends) }
	hash := sha256.New()
	product := func(dims []int, multiply func(c tensor.Tensor)) {
		c := tensor.New(tensor.FP32, dims...)
		multiply(c)
		hash.Write(c.Bytes())
	}
	s := mx.SumExact
	product([]int{m, n}, func(y tensor.Tensor) { s.MatMul(ex, y.Mat(), rows(x, nil), tile) })
	product([]int{m, k}, func(dx tensor.Tensor) { s.Dgrad(ex, dx.Mat(), rows(dy, nil), tile.WithBlocks(mx.AlongCols)) })
	product([]int{n, k}, func(dw tensor.Tensor) { s.Wgrad(ex, dw.Mat(), cols(dy, nil), cols(x, nil), m/2, false) })
	product([]int{m, n}, func(y tensor.Tensor) { s.GroupedMatMul(ex, y.Mat(), rows(x, ends), tiles, ends) })
	product([]int{m, k}, func(dx tensor.Tensor) {
		s.GroupedDgrad(ex, dx.Mat(), rows(dy, ends), tiles.WithBlocks(mx.AlongCols), ends)
	})
	product([]int{groups, n, k}, func(dw tensor.Tensor) { s.GroupedWgrad(ex, dw, cols(dy, ends), cols(x, ends), false) })
	return hex.EncodeToString(hash.Sum(nil))
}

// TestSpansOfSums: the sequences on one rank have the sum of ranks with one each, as a tree.
func TestSpansOfSums(t *testing.T) {
	for _, f := range []mx.Format{nvfp4RHT, mx.E4M3, mx.E5M2, mx.INT8} {
		testSpansOfSums(t, f)
	}
}

func testSpansOfSums(t *testing.T, f mx.Format) {
	const spans, span, n, k = 5, 32, 16, 32
	ex := tensor.NewExec()
	dy, x := quantizeTo(ex, f, mx.AlongCols, random(1, spans*span, n), nil), quantizeTo(ex, f, mx.AlongCols, random(2, spans*span, k), nil)
	for _, sum := range mx.Sums() {
		if sum.Multiplies(dy.Format, x.Format) != nil {
			continue
		}
		all, parts := tensor.New(tensor.FP32, n, k), tensor.New(tensor.FP32, spans, n, k)
		sum.Wgrad(ex, all.Mat(), dy, x, span, false)
		for i := range spans {
			sum.Wgrad(ex, parts.Index(i).Mat(), rowsOf(dy, i*span, (i+1)*span), rowsOf(x, i*span, (i+1)*span), 0, false)
		}
		for i, got := range all.F32() {
			p := func(part int) float32 { return parts.Index(part).F32()[i] }
			if want := ((p(0) + p(1)) + (p(2) + p(3))) + p(4); got != want {
				t.Fatalf("%v: element %d is %g in %d spans of one product, %g in as many products", sum, i, got, spans, want)
			}
		}
	}
}

// rowsOf returns whole blocks of rows of a matrix with blocks along columns.
func rowsOf(q mx.Tensor, lo, hi int) mx.Tensor {
	height, _ := q.BlockShape()
	q.Codes, q.Scales = q.Codes.Slice(lo, hi), q.Scales.Slice(lo/height, (hi+height-1)/height)
	return q
}
