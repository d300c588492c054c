package tensor

import (
	"math"

	"spmoe/tensor/internal/vec"
)

// ClampedSwiGLU computes h = silu(min(gate, limit))·clamp(up, -limit, limit) elementwise.
func ClampedSwiGLU(ex *Exec, h, gate, up Matrix, limit float32) {
	sameShape(h, gate)
	sameShape(h, up)
	defer ex.describeRows(h).End()
	job := clampedSwiGLU{h: h, gate: gate, up: up, limit: limit}
	forRows(ex, h.Rows, h.Rows*h.Cols, job, clampedRows)
}

// clampedSwiGLU holds the arguments of ClampedSwiGLU and of its gradient.
type clampedSwiGLU struct {
	h, gate, up, dgate, dup Matrix
	limit                   float32
}

func clampedRows(ex *Exec, c clampedSwiGLU, lo, hi int) {
	for r := lo; r < hi; r++ {
		gate, up, _ := c.row(ex, r)
		out := ex.target(2, c.h, r)
		vec.SwiGLU(out, gate, up)
		ex.store(c.h, r, out)
	}
}

// row returns row r of gate and of up within the limit, in scratch buffers 0 and 1, and reports
// whether an element was beyond it, which few rows have.
func (c clampedSwiGLU) row(ex *Exec, r int) (gate, up []float32, clamped bool) {
	gate, up = ex.scratchRow(0, c.gate.Cols), ex.scratchRow(1, c.up.Cols)
	getRow(gate, c.gate, r)
	getRow(up, c.up, r)
	negative := ex.scratchRow(2, c.up.Cols)
	vec.Scale(negative, -1, up)
	if max(vec.Max(gate), vec.Max(up), vec.Max(negative)) <= c.limit {
		return gate, up, false
	}
	for i := range gate {
		gate[i] = min(gate[i], c.limit)
		up[i] = min(max(up[i], -c.limit), c.limit)
	}
	return gate, up, true
}

// ClampedSwiGLUBackward computes the gradients of ClampedSwiGLU's inputs from dh: zero for what is
// beyond the limit. dgate and dup may share memory with gate and up.
func ClampedSwiGLUBackward(ex *Exec, dgate, dup, dh, gate, up Matrix, limit float32) {
	for _, m := range [...]Matrix{dgate, dup, gate, up} {
		sameShape(m, dh)
	}
	defer ex.describeRows(dh).End()
	job := clampedSwiGLU{h: dh, gate: gate, up: up, dgate: dgate, dup: dup, limit: limit}
	forRows(ex, dh.Rows, dh.Rows*dh.Cols, job, clampedBackwardRows)
}

func clampedBackwardRows(ex *Exec, c clampedSwiGLU, lo, hi int) {
	for r := lo; r < hi; r++ {
		dgate, dup, clamped := c.row(ex, r)
		vec.SwiGLUBackward(dgate, dup, ex.load(2, c.h, r), dgate, dup)
		if clamped {
			c.clear(ex, r, dgate, dup)
		}
		setRow(c.dgate, r, dgate)
		setRow(c.dup, r, dup)
	}
}

// clear sets the gradients of what is beyond the limit in row r to zero.
func (c clampedSwiGLU) clear(ex *Exec, r int, dgate, dup []float32) {
	for i, v := range ex.load(2, c.gate, r) {
		if v > c.limit {
			dgate[i] = 0
		}
	}
	for i, v := range ex.load(2, c.up, r) {
		if v > c.limit || v < -c.limit {
			dup[i] = 0
		}
	}
}

// setRow sets row r of m to x, rounded to m's type.
func setRow(m Matrix, r int, x []float32) {
	if m.dtype == BF16 {
		vec.Round(m.bf16Row(r), x)
	} else {
		copy(m.f32Row(r), x)
	}
}

// SqrtSoftplus sets x to √log(1 + exp(x)). x is FP32.
func SqrtSoftplus(ex *Exec, x Matrix) {
	x.checkFP32Rows()
	ex.elementwise(sqrtSoftplusRows, x)
}

func sqrtSoftplusRows(_ *Exec, m [5]Matrix) {
	for r := range m[0].Rows {
		row := m[0].f32Row(r)
		for i, v := range row {
			x := float64(v)
			row[i] = float32(math.Sqrt(max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))))
		}
	}
}

// SqrtSoftplusSlope returns the derivative of SqrtSoftplus where its result is s: with softplus(x)
// = s², the derivative of softplus is 1 - exp(-s²).
func SqrtSoftplusSlope(s float32) float32 {
	if s == 0 {
		return 0
	}
	return float32(-math.Expm1(-float64(s)*float64(s)) / (2 * float64(s)))
}
