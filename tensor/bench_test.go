package tensor

import (
	"fmt"
	"testing"
	"time"

	"spmoe/internal/testing/speed"
)

// debugAttention is the attention of the debug model's training step.
var debugAttention = AttentionShape{Batch: 2, Seq: 128, Heads: 4, KeyDim: 64, ValueDim: 64, Scale: 0.125}

// pairs counts the scores below and on the diagonal, of all heads: those that the result needs.
func (s AttentionShape) pairs() float64 {
	return float64(s.Batch*s.Heads) * float64(s.Seq) * float64(s.Seq+1) / 2
}

func BenchmarkCausalAttention(b *testing.B) {
	s := debugAttention
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		a := newAttention(newGenerator(dtype, 0), s)
		reportFLOPs(b, dtype, 2*s.pairs()*float64(s.KeyDim+s.ValueDim), a.forward)
	})
}

// BenchmarkCausalAttentionBackward counts the scores that are computed again.
func BenchmarkCausalAttentionBackward(b *testing.B) {
	s := debugAttention
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		a := newAttention(newGenerator(dtype, 0), s)
		a.forward()
		reportFLOPs(b, dtype, 2*s.pairs()*float64(3*s.KeyDim+2*s.ValueDim), a.backward)
	})
}

// BenchmarkLongAttention is BF16 over a long sequence, with the widths of 16B: one head, or four
// where one takes too little time.
func BenchmarkLongAttention(b *testing.B) {
	for _, seq := range []int{1024, 2048, 8192, 131072} {
		heads := 1
		if seq <= 2048 {
			heads = 4
		}
		s := AttentionShape{Batch: 1, Seq: seq, Heads: heads, KeyDim: 192, ValueDim: 128, Scale: 0.07}
		a := newAttention(newGenerator(BF16, 0), s)
		b.Run(fmt.Sprintf("%d/forward", seq), func(b *testing.B) {
			reportFLOPs(b, BF16, 2*s.pairs()*float64(s.KeyDim+s.ValueDim), a.forward)
		})
		b.Run(fmt.Sprintf("%d/backward", seq), func(b *testing.B) {
			reportFLOPs(b, BF16, 2*s.pairs()*float64(3*s.KeyDim+2*s.ValueDim), a.backward)
		})
	}
}

// benchRows and benchCols are the activations of the debug model's step.
const benchRows, benchCols = 256, 256

func BenchmarkRMSNorm(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		x, y := randomMatrix(dtype), randomMatrix(dtype)
		w, rstd := make([]float32, benchCols), make([]float32, benchRows)
		ex := NewExec()
		speed.Bytes(b, 2*benchBytes(dtype), func() { RMSNorm(ex, y, rstd, x, w, 1e-6) })
	})
}

func BenchmarkRMSNormBackward(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		x, dy, dx := randomMatrix(dtype), randomMatrix(dtype), randomMatrix(dtype)
		w, dw, rstd := make([]float32, benchCols), make([]float32, benchCols), make([]float32, benchRows)
		ex := NewExec()
		speed.Bytes(b, 4*benchBytes(dtype), func() { RMSNormBackward(ex, dx, dw, dy, x, w, rstd, true, 512) })
	})
}

func BenchmarkSwiGLU(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		h, gate, up := randomMatrix(dtype), randomMatrix(dtype), randomMatrix(dtype)
		ex := NewExec()
		speed.Bytes(b, 3*benchBytes(dtype), func() { SwiGLU(ex, h, gate, up) })
	})
}

func BenchmarkSwiGLUBackward(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		dgate, dup, dh := randomMatrix(dtype), randomMatrix(dtype), randomMatrix(dtype)
		gate, up := randomMatrix(dtype), randomMatrix(dtype)
		ex := NewExec()
		speed.Bytes(b, 5*benchBytes(dtype), func() { SwiGLUBackward(ex, dgate, dup, dh, gate, up) })
	})
}

func BenchmarkAdd(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		x, y := randomMatrix(dtype), randomMatrix(dtype)
		ex := NewExec()
		speed.Bytes(b, 3*benchBytes(dtype), func() { Add(ex, x, x, y) })
	})
}

// BenchmarkConvert rounds FP32 to BF16: a whole matrix, and the columns of a head.
func BenchmarkConvert(b *testing.B) {
	dst, src := randomMatrix(BF16), randomMatrix(FP32)
	for _, cols := range []int{benchCols, 48, 16} {
		b.Run(fmt.Sprintf("cols=%d", cols), func(b *testing.B) {
			d, s := dst.ColSlice(0, cols), src.ColSlice(0, cols)
			speed.Bytes(b, 6*benchRows*cols, func() { Convert(nil, d, s) })
		})
	}
}

// BenchmarkRotate turns 16 columns, those of one head of the debug model.
func BenchmarkRotate(b *testing.B) {
	eachDTypeBench(b, func(b *testing.B, dtype DType) {
		table := NewRotaryTable(128, rotaryFrequencies(8), 1)
		x := randomMatrix(dtype).ColSlice(48, 64)
		ex := NewExec()
		speed.Bytes(b, 2*benchBytes(dtype)*16/benchCols, func() { table.Rotate(ex, x, 128) })
	})
}

func randomMatrix(dtype DType) Matrix {
	return random(1, dtype, benchRows, benchCols).Mat()
}

func benchBytes(dtype DType) int { return benchRows * benchCols * dtype.Size() }

func eachDTypeBench(b *testing.B, f func(b *testing.B, dtype DType)) {
	for _, dtype := range floats {
		b.Run(dtype.String(), func(b *testing.B) { f(b, dtype) })
	}
}

// reportFLOPs reports the rate of f, and its share of the rate of multiply-adds in registers.
func reportFLOPs(b *testing.B, dtype DType, flops float64, f func()) {
	speed.Report(b, "GFLOP/s", flops, f, speed.Limit{Share: "of-peak", Rate: func() float64 { return PeakCore(dtype, 100*time.Microsecond) }})
}
