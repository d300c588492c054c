package bench

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// The kernels other than matrix products. They are bound by memory, except attention.

// attention is the forward pass of one causal head. Its work is that of the scores below the
// diagonal.
func attention(seq, key, value int) kernel {
	return attentionKernel("attention", seq, key, value, key+value, attentionCall.forward)
}

// attentionBackward is the backward pass of one causal head. Its work includes the scores, which it
// computes again.
func attentionBackward(seq, key, value int) kernel {
	return attentionKernel("attention_backward", seq, key, value, 3*key+2*value, attentionCall.backward)
}

// attentionKernel runs call for one causal head of BF16. Its products have columns columns and
// terms per pair of a query and a key.
func attentionKernel(name string, seq, key, value, columns int, call func(attentionCall)) kernel {
	return kernel{
		name: name, shape: fmt.Sprintf("%dx%d/%d", seq, key, value),
		work: 1e-9 * float64(seq) * float64(seq) * float64(columns), limit: peak(tensor.BF16),
		prepare: func(s *suite) func() {
			a := attentionCall{
				suite: s,
				q:     s.random(tensor.BF16, seq, key),
				k:     s.random(tensor.BF16, seq, key),
				v:     s.random(tensor.BF16, seq, value),
				o:     s.ex.New(tensor.BF16, seq, value),
				do:    s.random(tensor.BF16, seq, value),
				lse:   s.ex.New(tensor.FP32, seq),
				dq:    s.ex.New(tensor.BF16, seq, key),
				dk:    s.ex.New(tensor.BF16, seq, key),
				dv:    s.ex.New(tensor.BF16, seq, value),
				shape: tensor.AttentionShape{
					Batch:    1,
					Seq:      seq,
					Heads:    1,
					KeyDim:   key,
					ValueDim: value,
					Scale:    0.1,
				},
			}
			a.forward()
			return func() { call(a) }
		},
	}
}

// attentionCall holds the operands of an attention and its backward pass.
type attentionCall struct {
	*suite
	q, k, v, o, do, lse, dq, dk, dv tensor.Tensor
	shape                           tensor.AttentionShape
}

func (a attentionCall) forward() {
	tensor.CausalAttention(a.ex, a.o.Mat(), a.lse.F32(), a.q.Mat(), a.k.Mat(), a.v.Mat(), a.shape)
}

func (a attentionCall) backward() {
	tensor.CausalAttentionBackward(a.ex, a.dq.Mat(), a.dk.Mat(), a.dv.Mat(), a.do.Mat(),
		a.q.Mat(), a.k.Mat(), a.v.Mat(), a.o.Mat(), a.lse.F32(), a.shape)
}

// quantize is BF16 to MXFP8 in both directions in one pass. Its work is the bytes read, its limit a
// copy of those.
func quantize(rows, cols int) kernel {
	bytes := 2 * rows * cols
	return kernel{
		name:  "quantize",
		shape: fmt.Sprintf("%dx%d", rows, cols),
		work:  1e-9 * float64(bytes),
		limit: copying(bytes),
		prepare: func(s *suite) func() {
			x := s.random(tensor.BF16, rows, cols)
			along, across := mx.New(s.ex, mx.E4M3, mx.AlongRows, rows, cols), mx.New(s.ex, mx.E4M3, mx.AlongCols, rows, cols)
			return func() { mx.QuantizeBoth(s.ex, along, across, x.Mat(), mx.RCEIL) }
		},
	}
}

// The row kernels work on 64 MB of input, because data in a cache would not be bound by memory.
const rowBytes = 64 << 20

// byRows is a row kernel that moves this many bytes.
func byRows(name string, rows, cols, bytes int, prepare func(s *suite) func()) kernel {
	return kernel{
		name:    name,
		shape:   fmt.Sprintf("%dx%d", rows, cols),
		work:    1e-9 * float64(bytes),
		limit:   copying(bytes / 2),
		prepare: prepare,
	}
}

func rmsNorm() kernel {
	const cols, rows = 2048, rowBytes / 2 / 2048
	return byRows("rmsnorm", rows, cols, 2*rowBytes, func(s *suite) func() {
		x, w := s.random(tensor.BF16, rows, cols), s.random(tensor.FP32, 1, cols)
		y, rstd := s.ex.New(tensor.BF16, rows, cols), s.ex.New(tensor.FP32, rows)
		return func() { tensor.RMSNorm(s.ex, y.Mat(), rstd.F32(), x.Mat(), w.F32(), 1e-6) }
	})
}

func swiGLU() kernel {
	const cols, rows = 2048, rowBytes / 2 / 2048
	return byRows("swiglu", rows, cols, 3*rowBytes, func(s *suite) func() {
		gate, up, h := s.random(tensor.BF16, rows, cols), s.random(tensor.BF16, rows, cols), s.ex.New(tensor.BF16, rows, cols)
		return func() { tensor.SwiGLU(s.ex, h.Mat(), gate.Mat(), up.Mat()) }
	})
}

// crossEntropy replaces the logits by their gradient in place.
func crossEntropy() kernel {
	const cols, rows = 8192, rowBytes / 4 / 8192
	return byRows("cross_entropy", rows, cols, 2*rowBytes, func(s *suite) func() {
		logits, targets := s.random(tensor.FP32, rows, cols), make([]int32, rows)
		var loss tensor.CrossEntropy
		loss.Reset(targets, cols)
		return func() {
			loss.Add(s.ex, logits.Mat(), 0)
			loss.Gradient(s.ex, logits.Mat(), logits.Mat(), 0, 1)
		}
	})
}

// adamW reads four arrays, writes three of them in place, and writes the weights in BF16. So a copy
// is not its limit. The moments have the given type.
func adamW(name string, moments tensor.DType) kernel {
	const n = rowBytes / 2 / 4
	state := 4 + 2*moments.Size() // bytes per weight
	return kernel{
		name:  name,
		shape: fmt.Sprint(n),
		work:  1e-9 * float64((2*state+4+2)*n),
		limit: updating((state + 4) * n),
		prepare: func(s *suite) func() {
			master, g := s.random(tensor.FP32, 1, n), s.random(tensor.FP32, 1, n)
			m, v := s.ex.New(moments, n), s.ex.New(moments, n)
			m.Zero()
			v.Zero()
			step := tensor.NewAdamWStep(1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 10)
			state := tensor.AdamWState{Master: master, ExpAvg: m, ExpAvgSq: v}
			work := s.ex.New(tensor.BF16, 1, n)
			return func() { tensor.AdamW(s.ex, state, state, work, g, step, new(tensor.UpdateSums)) }
		},
	}
}
