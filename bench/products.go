package bench

import (
	"fmt"
	"time"

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

// bytes returns the memory of n elements, including scales.
func (f format) bytes(n int) int {
	if f.quantized {
		return int(float64(n) * f.codes.BytesPerElement())
	}
	return n * f.dtype.Size()
}

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

// copies returns n operands with the same values, each in its own memory.
func (s *suite) copies(f format, n, rows, cols int) []operand {
	all := []operand{s.operand(f, rows, cols)}
	for len(all) < n {
		var o operand
		if f.quantized {
			o.blocks = mx.New(s.ex, f.codes, mx.AlongRows, rows, cols)
			copy(o.blocks.Codes.Bytes(), all[0].blocks.Codes.Bytes())
			copy(o.blocks.Scales.Bytes(), all[0].blocks.Scales.Bytes())
		} else {
			o.plain = s.ex.New(f.dtype, rows, cols)
			copy(o.plain.Bytes(), all[0].plain.Bytes())
		}
		all = append(all, o)
	}
	return all
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

// streamed is gemm with few rows and weights that come from memory. Its work is the weights' bytes.
func streamed(f format, m, n, k int) kernel {
	kern := gemm(f, m, n, k)
	kern.work, kern.limit = 1e-9*float64(f.bytes(n*k)), reading()
	kern.prepare = streaming(f, m, n, k)
	return kern
}

// streaming allocates more weights than a cache holds and uses the next ones in every call.
func streaming(f format, m, n, k int) func(s *suite) func() {
	return func(s *suite) func() {
		x, y := s.operand(f, m, k), s.ex.New(tensor.FP32, m, n)
		w := s.copies(f, weightCopies(f.bytes(n*k)), n, k)
		next := 0
		return func() {
			s.multiply(f, y, x, w[next])
			next = (next + 1) % len(w)
		}
	}
}

// weightCopies returns the number of weights of this size that exceed all caches.
func weightCopies(bytes int) int { return (160<<20)/bytes + 1 }

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

// onTwoThreads is the BF16 gemm on two threads. Its limit is twice the speed of one thread.
func onTwoThreads(m, n, k int) kernel {
	one := gemm(inBF16, m, n, k)
	two := one
	two.name = "bf16_gemm_2threads"
	two.limit = limit{"twice one thread", "GFLOP/s", func(s *suite) Rate {
		rate := one.rate(s)
		return func(d time.Duration) float64 { return 2 * rate(d) }
	}}
	two.prepare = func(s *suite) func() { return one.prepare(s.onPair()) }
	return two
}
