package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// RotaryTable holds the cosines and sines of rotary position embedding for positions [0, Len).
// A head has interleaved pairs, elements 2i and 2i+1, or those of halves, elements i and pairs + i.
// Pair i rotates by angle i.
type RotaryTable struct {
	cos, sin Tensor // [Len, pairs] FP32
	halves   bool
}

// NewRotaryTable tabulates the angles position·freq[i]. Cosine and sine are multiplied by scale,
// which is YaRN's attention factor, or 1 without YaRN.
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

// NewDryRotaryTable returns a table for a dry run.
func NewDryRotaryTable(positions, pairs int) *RotaryTable {
	return &RotaryTable{cos: NewDry(FP32, positions, pairs), sin: NewDry(FP32, positions, pairs)}
}

// Halves returns the table for the pairs of halves.
func (t *RotaryTable) Halves() *RotaryTable { return &RotaryTable{t.cos, t.sin, true} }

// PairedAs returns the table with the pairs of another one.
func (t *RotaryTable) PairedAs(o *RotaryTable) *RotaryTable {
	return &RotaryTable{t.cos, t.sin, o.halves}
}

// Len returns the number of positions in the table.
func (t *RotaryTable) Len() int { return t.cos.Dim(0) }

// Pairs returns the number of pairs.
func (t *RotaryTable) Pairs() int { return t.cos.Dim(1) }

// From returns the part of the table that begins at position. Row r of its argument is then at
// position + r mod seq.
func (t *RotaryTable) From(position int) *RotaryTable {
	return &RotaryTable{t.cos.Slice(position, t.Len()), t.sin.Slice(position, t.Len()), t.halves}
}

// Rotate rotates every row r of x: [rows, 2·pairs] in place. Row r is at position r mod seq.
func (t *RotaryTable) Rotate(ex *Exec, x Matrix, seq int) { t.rotate(ex, x, seq, 1) }

// RotateBack applies the transpose of Rotate, as the backward pass needs it.
func (t *RotaryTable) RotateBack(ex *Exec, x Matrix, seq int) { t.rotate(ex, x, seq, -1) }

func (t *RotaryTable) rotate(ex *Exec, x Matrix, seq int, sign float32) {
	x.checkRows()
	pairs := t.cos.Dim(1)
	if x.Cols != 2*pairs || seq < 1 || seq > t.Len() {
		panic(fmt.Sprintf("tensor: rotating %d columns in sequences of %d with a table of %d pairs and %d positions",
			x.Cols, seq, pairs, t.Len()))
	}
	defer ex.describeRows(x).End()
	kernel := rotateRows
	if t.halves {
		kernel = rotateHalves
	}
	forRows(ex, x.Rows, x.Rows*x.Cols, rotation{table: t, x: x, seq: seq, sign: sign}, kernel)
}

// rotation holds the arguments of Rotate and RotateBack.
type rotation struct {
	table *RotaryTable
	x     Matrix
	seq   int
	sign  float32
}

// rotateRows rotates rows [lo, end), one sequence at a time.
func rotateRows(_ *Exec, t rotation, lo, end int) {
	for hi := lo; lo < end; lo = hi {
		hi = min(lo-lo%t.seq+t.seq, end)
		t.turn(lo, hi, lo%t.seq)
	}
}

// turn rotates rows [lo, hi), which are at successive positions.
func (t rotation) turn(lo, hi, position int) {
	rows, pairs := t.x.RowSlice(lo, hi), t.table.cos.Dim(1)
	cos := t.table.cos.Slice(position, position+hi-lo).F32()
	sin := t.table.sin.Slice(position, position+hi-lo).F32()
	if rows.dtype == BF16 {
		vec.RotateBF16(rows.bf16Rows(), rows.rowStride, cos, sin, pairs, t.sign)
	} else {
		vec.Rotate(rows.f32Rows(), rows.rowStride, cos, sin, pairs, t.sign)
	}
}

// RotateAt is Rotate, or with back RotateBack, for rows at the given positions, of interleaved
// pairs. Those at negative ones stay.
func (t *RotaryTable) RotateAt(ex *Exec, x Matrix, positions []int32, back bool) {
	x.checkRows()
	if x.Cols != 2*t.cos.Dim(1) || len(positions) != x.Rows || t.halves {
		panic(fmt.Sprintf("tensor: rotating [%d, %d] to %d positions with a table of %d pairs", x.Rows, x.Cols, len(positions), t.cos.Dim(1)))
	}
	sign := float32(1)
	if back {
		sign = -1
	}
	defer ex.describeRows(x).End()
	forRows(ex, x.Rows, x.Rows*x.Cols, placedRotation{rotation{table: t, x: x, sign: sign}, positions}, rotatePlaced)
}

// placedRotation holds the arguments of RotateAt.
type placedRotation struct {
	rotation
	positions []int32
}

func rotatePlaced(_ *Exec, t placedRotation, lo, end int) {
	for r := lo; r < end; r++ {
		if at := int(t.positions[r]); at >= 0 {
			t.turn(r, r+1, at)
		}
	}
}

// rotateHalves is rotateRows for the pairs of halves. Conversions of products keep compilers for
// arm64 from fusing them with additions, which would change bits.
func rotateHalves(ex *Exec, t rotation, lo, end int) {
	pairs := t.table.cos.Dim(1)
	for r := lo; r < end; r++ {
		row, at := ex.load(0, t.x, r), r%t.seq
		cos, sin := t.table.cos.Index(at).F32(), t.table.sin.Index(at).F32()
		left, right := row[:pairs], row[pairs:][:pairs]
		for i, u := range left {
			v, c, s := right[i], cos[i], t.sign*sin[i]
			left[i] = float32(u*c) - float32(v*s)
			right[i] = float32(u*s) + float32(v*c)
		}
		ex.store(t.x, r, row)
	}
}

// sincos32 rounds the angle to float32 before it takes the sine and cosine. Other frameworks do the
// same, so the tables agree at large positions.
func sincos32(position int, freq float64) (sin, cos float64) {
	return math.Sincos(float64(float32(position) * float32(freq)))
}

// Elements returns all cosines and all sines. They must not be changed.
func (t *RotaryTable) Elements() []Tensor { return []Tensor{t.cos, t.sin} }
