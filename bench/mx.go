package bench

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// quantised returns a random matrix in a block format.
func (s *suite) quantised(f mx.Format, rows, cols int) mx.Tensor {
	q := mx.New(s.ex, f, mx.AlongRows, rows, cols)
	x := s.random(tensor.BF16, rows, cols)
	mx.Quantize(s.ex, q, x.Mat(), mx.RCEIL)
	return q
}

// mxGEMM is y = x·Wᵀ of operands in a block format. With quantising, x comes as BF16 and is
// quantised each time, as activations are.
func (s *suite) mxGEMM(name string, f mx.Format, quantising bool, m, n, k int) kernel {
	w, x := s.quantised(f, n, k), s.quantised(f, m, k)
	wide := s.random(tensor.BF16, m, k)
	y := s.ex.New(tensor.FP32, m, n)
	return kernel{
		name: name, shape: fmt.Sprintf("%dx%dx%d", m, n, k), work: 2e-9 * float64(m) * float64(n) * float64(k), limit: peak(tensor.BF16),
		run: func() {
			if quantising {
				mx.Quantize(s.ex, x, wide.Mat(), mx.RCEIL)
			}
			mx.MatMul(s.ex, y.Mat(), x, w)
		},
	}
}

// mxStreamed is mxGEMM with few rows and weights that come from memory: its work is the weights' bytes.
func (s *suite) mxStreamed(m, n, k int) kernel {
	copies := streamedBytes/(n*k) + 1
	one, x := s.quantised(mx.E4M3, n, k), s.quantised(mx.E4M3, m, k)
	var weights []mx.Tensor
	for range copies {
		w := mx.New(s.ex, mx.E4M3, mx.AlongRows, n, k)
		copy(w.Codes.Bytes(), one.Codes.Bytes())
		copy(w.Scales.Bytes(), one.Scales.Bytes())
		weights = append(weights, w)
	}
	y := s.ex.New(tensor.FP32, m, n)
	next := 0
	return kernel{
		name: "mxfp8_gemm", shape: fmt.Sprintf("%dx%dx%d", m, n, k), work: 1e-9 * float64(n) * float64(k) * 33 / 32, limit: reading(),
		run: func() {
			mx.MatMul(s.ex, y.Mat(), x, weights[next])
			next = (next + 1) % copies
		},
	}
}

// mxGrouped is one product an expert, rows each, weights from memory.
func (s *suite) mxGrouped(experts, rows, n, k int) kernel {
	x, w := s.quantised(mx.E4M3, experts*rows, k), s.quantised(mx.E4M3, experts*n, k)
	y := s.ex.New(tensor.BF16, experts*rows, n)
	ends := mx.GroupsOf(experts, rows)
	return kernel{
		name: "mxfp8_grouped", shape: fmt.Sprintf("%dx%dx%dx%d", experts, rows, n, k),
		work: 2e-9 * float64(experts*rows) * float64(n) * float64(k), limit: peak(tensor.BF16),
		run: func() { mx.GroupedMatMul(s.ex, y.Mat(), x, w, ends) },
	}
}

// quantize is BF16 to MXFP8 in both directions in one pass; its work is the bytes read, its limit a copy of those.
func (s *suite) quantize(rows, cols int) kernel {
	x := s.random(tensor.BF16, rows, cols)
	along, across := mx.New(s.ex, mx.E4M3, mx.AlongRows, rows, cols), mx.New(s.ex, mx.E4M3, mx.AlongCols, rows, cols)
	bytes := 2 * rows * cols
	return kernel{
		name: "quantize", shape: fmt.Sprintf("%dx%d", rows, cols), work: 1e-9 * float64(bytes), limit: copying(bytes),
		run: func() { mx.QuantizeBoth(s.ex, along, across, x.Mat(), mx.RCEIL) },
	}
}
