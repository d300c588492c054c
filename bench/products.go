package bench

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// format is the number format of both operands of a product.
type format struct {
	name      string // prefix of its measurements
	dtype     tensor.DType
	quantized bool // into codes, in blocks along the sum; made from dtype
	codes     mx.Format
}

var (
	inFP32  = format{name: "fp32", dtype: tensor.FP32}
	inBF16  = format{name: "bf16", dtype: tensor.BF16}
	inMXFP8 = format{"mxfp8", tensor.BF16, true, mx.E4M3}
)

// operand is a matrix in a format, in one of two forms.
type operand struct {
	plain  tensor.Tensor
	blocks mx.Tensor
}

// operand returns a random matrix.
func (s *suite) operand(f format, rows, cols int) operand {
	if !f.quantized {
		return operand{plain: s.random(f.dtype, rows, cols)}
	}
	blocks := mx.New(s.ex, f.codes, mx.AlongRows, rows, cols)
	mark := s.ex.Mark()
	mx.Quantize(s.ex, blocks, s.random(f.dtype, rows, cols).Mat(), mx.RCEIL)
	s.ex.Release(mark)
	return operand{blocks: blocks}
}

// multiply computes y = x·wᵀ.
func (s *suite) multiply(f format, y tensor.Tensor, x, w operand) {
	if f.quantized {
		mx.SumFP32.MatMul(s.ex, y.Mat(), x.blocks, w.blocks)
	} else {
		tensor.MatMul(s.ex, y.Mat(), x.plain.Mat(), w.plain.Mat().T())
	}
}

// compared adds the same product in BF16 to a quantized product.
func compared(f format, product func(f format) kernel) kernel {
	k := product(f)
	if f.quantized {
		base := product(inBF16)
		k.inBF16 = &base
	}
	return k
}

func gigaFLOPs(m, n, k int) float64 { return 2e-9 * float64(m) * float64(n) * float64(k) }

// gemm is y = x·Wᵀ, as in the forward pass of a linear layer, including the packing of both.
func gemm(f format, m, n, k int) kernel {
	return kernel{
		name: f.name + "_gemm", shape: fmt.Sprintf("%dx%dx%d", m, n, k), work: gigaFLOPs(m, n, k), limit: peak(f.dtype),
		prepare: func(s *suite) func() {
			x, w, y := s.operand(f, m, k), s.operand(f, n, k), s.ex.New(tensor.FP32, m, n)
			return func() { s.multiply(f, y, x, w) }
		},
	}
}

// quantizingGEMM is a quantized gemm that quantizes a BF16 x in each call, as with activations.
func quantizingGEMM(f format, m, n, k int) kernel {
	kern := gemm(f, m, n, k)
	kern.name += "_quantize"
	kern.prepare = func(s *suite) func() {
		wide, x, w, y := s.random(f.dtype, m, k), s.operand(f, m, k), s.operand(f, n, k), s.ex.New(tensor.FP32, m, n)
		return func() {
			mx.Quantize(s.ex, x.blocks, wide.Mat(), mx.RCEIL)
			s.multiply(f, y, x, w)
		}
	}
	return kern
}

// grouped is one product per expert, with rows rows each, into type out. The weights of all experts
// exceed the caches.
func grouped(f format, out tensor.DType, experts, rows, n, k int) kernel {
	return kernel{
		name: f.name + "_grouped", shape: fmt.Sprintf("%dx%dx%dx%d", experts, rows, n, k),
		work: gigaFLOPs(experts*rows, n, k), limit: peak(f.dtype),
		prepare: func(s *suite) func() {
			x, w, y := s.operand(f, experts*rows, k), s.operand(f, experts*n, k), s.ex.New(out, experts*rows, n)
			ends := mx.EqualGroups(experts, rows)
			if f.quantized {
				return func() { mx.SumFP32.GroupedMatMul(s.ex, y.Mat(), x.blocks, w.blocks, ends) }
			}
			weights := w.plain.Reshape(experts, n, k)
			return func() { tensor.GroupedMatMul(s.ex, y.Mat(), x.plain.Mat(), weights, ends) }
		},
	}
}
