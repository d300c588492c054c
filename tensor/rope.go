package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// RotaryTable holds the cosines and sines of rotary position embedding for positions
// [0, Len): interleaved pairs, so element 2i and 2i+1 of a head turn by angle i.
type RotaryTable struct {
	cos, sin Tensor // [Len, pairs] FP32
}

// NewRotaryTable tabulates angle position·freq[i], cosine and sine multiplied by scale
// (YaRN's attention factor; 1 without it).
func NewRotaryTable(positions int, freq []float64, scale float64) *RotaryTable {
	t := &RotaryTable{cos: New(FP32, positions, len(freq)), sin: New(FP32, positions, len(freq))}
	cos, sin := t.cos.F32(), t.sin.F32()
	for p := range positions {
		for i, f := range freq {
			s, c := sincos32(p, f)
			cos[p*len(freq)+i] = float32(c * scale)
			sin[p*len(freq)+i] = float32(s * scale)
		}
	}
	return t
}

// Len returns the number of positions in the table.
func (t *RotaryTable) Len() int { return t.cos.Dim(0) }

// From returns the part of the table that begins at a position: row r of what it rotates is at
// position + r mod seq.
func (t *RotaryTable) From(position int) *RotaryTable {
	return &RotaryTable{cos: t.cos.Slice(position, t.Len()), sin: t.sin.Slice(position, t.Len())}
}

// Rotate turns the row at position r mod seq, for every row r of x: [rows, 2·pairs], in place.
func (t *RotaryTable) Rotate(ex *Exec, x Matrix, seq int) { t.rotate(ex, x, seq, 1) }

// RotateBack is the transpose of Rotate: what gradients go through.
func (t *RotaryTable) RotateBack(ex *Exec, x Matrix, seq int) { t.rotate(ex, x, seq, -1) }

func (t *RotaryTable) rotate(ex *Exec, x Matrix, seq int, sign float32) {
	x.checkRows()
	pairs := t.cos.Dim(1)
	if x.Cols != 2*pairs || seq < 1 || seq > t.Len() {
		panic(fmt.Sprintf("tensor: rotating %d columns in sequences of %d with a table of %d pairs and %d positions",
			x.Cols, seq, pairs, t.Len()))
	}
	rowParts(ex, x.Rows, x.Rows*x.Cols, turn{table: t, x: x, seq: seq, sign: sign}, turnRows)
}

// turn is the arguments of a rotation.
type turn struct {
	table *RotaryTable
	x     Matrix
	seq   int
	sign  float32
}

// turnRows turns rows [lo, end), a sequence at a time.
func turnRows(_ *Exec, t turn, lo, end int) {
	pairs := t.table.cos.Dim(1)
	for lo < end {
		position := lo % t.seq
		hi := min(lo-position+t.seq, end)
		rows := t.x.RowSlice(lo, hi)
		cos, sin := t.table.cos.Slice(position, position+hi-lo).F32(), t.table.sin.Slice(position, position+hi-lo).F32()
		if rows.dtype == BF16 {
			vec.RotateBF16(rows.bf16Rows(), rows.rowStride, cos, sin, pairs, t.sign)
		} else {
			vec.Rotate(rows.f32Rows(), rows.rowStride, cos, sin, pairs, t.sign)
		}
		lo = hi
	}
}

// sincos32 follows the usual float32 form: the angle is rounded before its sine is taken,
// so that tables agree with those of other frameworks at large positions.
func sincos32(position int, freq float64) (sin, cos float64) {
	return math.Sincos(float64(float32(position) * float32(freq)))
}
