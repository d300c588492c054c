package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	"spmoe/mx"
	"spmoe/tensor"
)

// Kernels measures the engine's kernels on one core and hands each result to yield as it comes.
// Quick takes fewer shapes and rounds.
func Kernels(quick bool, yield func(Result)) {
	e := effort{rounds: 15, sample: 100 * time.Millisecond}
	if quick {
		e = effort{rounds: 5, sample: 30 * time.Millisecond}
	}
	s := newSuite()
	for _, make := range s.kernels(quick) {
		mark := s.ex.Mark()
		yield(e.measure(make()))
		s.ex.Release(mark)
	}
}

// suite makes the kernels' operands, in an arena that is released between kernels.
type suite struct {
	ex  *tensor.Exec
	rng *rand.Rand
}

func newSuite() *suite { return &suite{ex: tensor.NewExec(), rng: rand.New(rand.NewPCG(1, 2))} }

// kernels lists the measurements; each makes its operands when it is called.
func (s *suite) kernels(quick bool) []func() kernel {
	var all []func() kernel
	add := func(k func() kernel) { all = append(all, k) }
	shapes := [][3]int{{1024, 1024, 1024}, {512, 2048, 7168}, {128, 2048, 7168}, {32, 2048, 7168}, {64, 512, 256}, {512, 512, 256}}
	if !quick {
		shapes = append(shapes, [3]int{4096, 4096, 4096}, [3]int{2048, 256, 512}, [3]int{256, 1024, 256})
	}
	for _, m := range shapes {
		add(func() kernel { return s.gemm(tensor.BF16, m[0], m[1], m[2]) })
		add(func() kernel { return s.packedGEMM(m[0], m[1], m[2]) })
		add(func() kernel { return s.mxGEMM("mxfp8_gemm", mx.E4M3, false, m[0], m[1], m[2]) })
	}
	for _, rows := range []int{8, 4, 1} {
		add(func() kernel { return s.streamed(rows, 2048, 7168) })
		add(func() kernel { return s.mxStreamed(rows, 2048, 7168) })
	}
	add(func() kernel { return s.gemm(tensor.FP32, 1024, 1024, 1024) })
	add(func() kernel { return s.mxGEMM("mxfp8_gemm_quantize", mx.E4M3, true, 1024, 1024, 1024) })
	add(func() kernel { return s.mxGEMM("mxint8_gemm", mx.INT8, false, 1024, 1024, 1024) })
	for _, rows := range []int{8, 32, 128} {
		add(func() kernel { return s.grouped(32, rows, 2048, 1024) })
		add(func() kernel { return s.mxGrouped(32, rows, 2048, 1024) })
	}
	add(func() kernel { return s.quantize(64, 1024) })
	add(func() kernel { return s.quantize(8192, 2048) })
	seq := 2048
	if quick {
		seq = 1024
	}
	add(func() kernel { return s.attention(seq, 192, 128) })
	add(s.rmsNorm)
	add(s.swiGLU)
	add(s.crossEntropy)
	add(s.adamW)
	return all
}

// random returns a matrix of normal numbers.
func (s *suite) random(dtype tensor.DType, rows, cols int) tensor.Tensor {
	wide := s.ex.New(tensor.FP32, rows, cols)
	for i := range wide.F32() {
		wide.F32()[i] = float32(s.rng.NormFloat64())
	}
	if dtype == tensor.FP32 {
		return wide
	}
	t := s.ex.New(dtype, rows, cols)
	tensor.Convert(s.ex, t.Mat(), wide.Mat())
	return t
}

// gemm is y = x·Wᵀ, as the forward pass of a linear layer, the packing of both inside.
func (s *suite) gemm(dtype tensor.DType, m, n, k int) kernel {
	x, w := s.random(dtype, m, k), s.random(dtype, n, k)
	y := s.ex.New(tensor.FP32, m, n)
	name := "bf16_gemm"
	if dtype == tensor.FP32 {
		name = "fp32_gemm"
	}
	return kernel{
		name: name, shape: fmt.Sprintf("%dx%dx%d", m, n, k), work: 2e-9 * float64(m) * float64(n) * float64(k), limit: peak(dtype),
		run: func() { tensor.MatMul(s.ex, y.Mat(), x.Mat(), w.Mat().T()) },
	}
}

// packedGEMM is the BF16 gemm with weights that were packed once, beforehand.
func (s *suite) packedGEMM(m, n, k int) kernel {
	kern := s.gemm(tensor.BF16, m, n, k)
	x, w, y := s.random(tensor.BF16, m, k), s.random(tensor.BF16, n, k), s.ex.New(tensor.FP32, m, n)
	packed := new(tensor.Packed)
	packed.Pack(s.ex, w.Mat().T())
	kern.name, kern.run = "bf16_gemm_packed", func() { tensor.MatMulPacked(s.ex, y.Mat(), x.Mat(), packed) }
	return kern
}

// streamedBytes is more than any cache of this class of machine holds.
const streamedBytes = 160 << 20

// streamed is gemm with few rows and weights that come from memory: its work is the weights' bytes.
func (s *suite) streamed(m, n, k int) kernel {
	copies := streamedBytes/(2*n*k) + 1
	x, one := s.random(tensor.BF16, m, k), s.random(tensor.BF16, n, k)
	w := s.ex.New(tensor.BF16, copies, n, k)
	for i := range copies {
		copy(w.Index(i).Bytes(), one.Bytes())
	}
	y := s.ex.New(tensor.FP32, m, n)
	next := 0
	return kernel{
		name: "bf16_gemm", shape: fmt.Sprintf("%dx%dx%d", m, n, k), work: 2e-9 * float64(n) * float64(k), limit: reading(),
		run: func() {
			tensor.MatMul(s.ex, y.Mat(), x.Mat(), w.Index(next).Mat().T())
			next = (next + 1) % copies
		},
	}
}

// grouped is one product an expert, rows each, weights from memory.
func (s *suite) grouped(experts, rows, n, k int) kernel {
	x := s.random(tensor.BF16, experts*rows, k)
	w := s.random(tensor.BF16, experts*n, k).Reshape(experts, n, k)
	y := s.ex.New(tensor.BF16, experts*rows, n)
	ends := make([]int32, experts)
	for i := range ends {
		ends[i] = int32((i + 1) * rows)
	}
	return kernel{
		name: "bf16_grouped", shape: fmt.Sprintf("%dx%dx%dx%d", experts, rows, n, k),
		work: 2e-9 * float64(experts*rows) * float64(n) * float64(k), limit: peak(tensor.BF16),
		run: func() { tensor.GroupedMatMul(s.ex, y.Mat(), x.Mat(), w, ends) },
	}
}

// attention is the forward pass of one causal head; its work is that of the scores below the diagonal.
func (s *suite) attention(seq, key, value int) kernel {
	q, k, v := s.random(tensor.BF16, seq, key), s.random(tensor.BF16, seq, key), s.random(tensor.BF16, seq, value)
	o, lse := s.ex.New(tensor.BF16, seq, value), s.ex.New(tensor.FP32, seq)
	shape := tensor.AttentionShape{Batch: 1, Seq: seq, Heads: 1, KeyDim: key, ValueDim: value, Scale: 0.1}
	return kernel{
		name: "attention", shape: fmt.Sprintf("%dx%d/%d", seq, key, value),
		work: 1e-9 * float64(seq) * float64(seq) * float64(key+value), limit: peak(tensor.BF16),
		run: func() { tensor.CausalAttention(s.ex, o.Mat(), lse.F32(), q.Mat(), k.Mat(), v.Mat(), shape) },
	}
}

// The row kernels work on 16 MB of input, of which the second-level cache holds little.
const rowBytes = 16 << 20

func (s *suite) rows(name string, cols, bytes int, run func()) kernel {
	return kernel{name: name, shape: fmt.Sprintf("%dx%d", rowBytes/2/cols, cols), work: 1e-9 * float64(bytes), limit: copying(bytes / 2), run: run}
}

func (s *suite) rmsNorm() kernel {
	const cols = 2048
	x := s.random(tensor.BF16, rowBytes/2/cols, cols)
	y, rstd, w := s.ex.New(tensor.BF16, x.Dim(0), cols), s.ex.New(tensor.FP32, x.Dim(0)), s.random(tensor.FP32, 1, cols)
	return s.rows("rmsnorm", cols, 2*rowBytes, func() {
		tensor.RMSNorm(s.ex, y.Mat(), rstd.F32(), x.Mat(), w.F32(), 1e-6)
	})
}

func (s *suite) swiGLU() kernel {
	const cols = 2048
	gate := s.random(tensor.BF16, rowBytes/2/cols, cols)
	up, h := s.random(tensor.BF16, gate.Dim(0), cols), s.ex.New(tensor.BF16, gate.Dim(0), cols)
	return s.rows("swiglu", cols, 3*rowBytes, func() { tensor.SwiGLU(s.ex, h.Mat(), gate.Mat(), up.Mat()) })
}

func (s *suite) crossEntropy() kernel {
	const cols = 8192
	logits := s.random(tensor.FP32, rowBytes/4/cols, cols)
	targets := make([]int32, logits.Dim(0))
	k := s.rows("cross_entropy", cols, 2*rowBytes, func() { tensor.CrossEntropy(logits.Mat(), targets, 1) })
	k.shape = fmt.Sprintf("%dx%d", logits.Dim(0), cols)
	return k
}

func (s *suite) adamW() kernel {
	const n = rowBytes / 4
	master, m, v, g := s.random(tensor.FP32, 1, n), s.ex.New(tensor.FP32, n), s.ex.New(tensor.FP32, n), s.random(tensor.FP32, 1, n)
	m.Zero()
	v.Zero()
	step := tensor.NewAdamWStep(1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 10)
	k := s.rows("adamw", n, 7*rowBytes, func() { tensor.AdamW(master, m, v, g, step) })
	k.shape = fmt.Sprintf("%d", n)
	return k
}
