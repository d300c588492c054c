package tensor

import (
	"math"
	"testing"
)

// TestWarmStepAllocatesNothing runs every kernel that takes an Exec, as a step would.
func TestWarmStepAllocatesNothing(t *testing.T) {
	for _, dtype := range floats {
		t.Run(dtype.String(), func(t *testing.T) {
			step := newStep(dtype)
			step.run()
			peak := step.ex.Peak()
			if n := testing.AllocsPerRun(5, step.run); n != 0 {
				t.Errorf("%v allocations in a warm step", n)
			}
			if step.ex.Peak() != peak {
				t.Errorf("the peak grew from %d to %d bytes", peak, step.ex.Peak())
			}
			if x := get(step.table.Mat(), 1, 0); math.IsNaN(x) || x == 0 {
				t.Errorf("the embedding's gradient is %v", x)
			}
		})
	}
}

// step is one training step's worth of kernels on a small model.
type step struct {
	loss                       CrossEntropy
	ex                         *Exec
	x, y, table, experts, wide Tensor
	dexperts                   Tensor
	ids, ends                  []int32
	uses                       [1]Embedded
	norm, dnorm, rstd          []float32
	rotary                     *RotaryTable
	shape                      AttentionShape
}

func newStep(dtype DType) *step {
	const rows, dim = 70, 16
	return &step{
		ex: NewExec(), x: random(1, dtype, rows, dim), y: random(2, dtype, rows, dim),
		table: random(3, FP32, 9, dim), experts: random(4, dtype, 3, dim, dim), wide: random(5, FP32, rows, dim),
		dexperts: New(FP32, 3, dim, dim), ids: make([]int32, rows), ends: []int32{30, 30, rows},
		norm: make([]float32, dim), dnorm: make([]float32, dim), rstd: make([]float32, rows),
		rotary: NewRotaryTable(35, rotaryFrequencies(dim/2), 1),
		shape:  AttentionShape{Batch: 2, Seq: 35, Heads: 2, KeyDim: 8, ValueDim: 8, Scale: 0.3},
	}
}

func (s *step) run() {
	ex, x, y := s.ex, s.x.Mat(), s.y.Mat()
	defer ex.Reset()
	h, lse := ex.New(s.x.dtype, 70, 16).Mat(), ex.New(FP32, 140).F32()
	dq, dk, dv := ex.New(s.x.dtype, 70, 16).Mat(), ex.New(s.x.dtype, 70, 16).Mat(), ex.New(s.x.dtype, 70, 16).Mat()
	Embed(ex, s.wide.Mat(), s.table.Mat(), s.ids)
	Convert(ex, x, s.wide.Mat())
	RMSNorm(ex, h, s.rstd, x, s.norm, 1e-6)
	s.rotary.Rotate(ex, x, 35)
	CausalAttention(ex, h, lse, x, y, y, s.shape)
	CausalAttentionBackward(ex, dq, dk, dv, y, x, y, y, h, lse, s.shape)
	s.rotary.RotateBack(ex, dq, 35)
	GroupedMatMul(ex, h, x, s.experts, s.ends)
	GroupedDgrad(ex, dq, h, s.experts, s.ends)
	GroupedWgrad(ex, s.dexperts, h, x, s.ends, true)
	SwiGLU(ex, h, x, y)
	SwiGLUBackward(ex, dq, dk, h, x, y)
	SumBlocks(ex, h.ColSlice(0, 4), x, 4, 4)
	Add(ex, h, h, dq)
	RMSNormBackward(ex, h, s.dnorm, h, x, s.norm, s.rstd, true, 35)
	s.uses[0] = Embedded{dk, s.ids}
	EmbedBackward(ex, s.table.Mat(), 35, s.uses[:])
	Wgrad(ex, s.dexperts.Index(0).Mat(), h, x, 35, true)
	Softmax(ex, s.wide.Mat())
	Sigmoid(ex, s.wide.Mat())
	wholeCrossEntropy(ex, &s.loss, s.wide.Mat(), s.ids, 1)
}
