package mx

// The quantised matrix: codes, scales and the direction in which its blocks lie.

import (
	"fmt"

	"spmoe/tensor"
)

// Direction says along which dimension of a matrix the blocks lie. Products contract along the blocks.
type Direction uint8

// The directions.
const (
	AlongRows Direction = iota // 1x32: a block is 32 neighbours in a row
	AlongCols                  // 32x1: a block is 32 neighbours in a column
)

func (d Direction) String() string {
	if d == AlongRows {
		return "along rows"
	}
	return "along columns"
}

// Tensor is a matrix of codes with block scales. Element (i, j) is decode(Codes[i, j]) times the scale of its block.
type Tensor struct {
	Format Format
	Blocks Direction
	// Codes is UINT8 [rows, cols], one code a byte, the same layout for both directions.
	Codes tensor.Tensor
	// Scales is UINT8 (E8M0): [rows, ceil(cols/32)] for AlongRows; for AlongCols [blocks, cols], where the blocks of
	// each group of rows follow those of the group before.
	Scales tensor.Tensor
	// Ends cuts the rows of an AlongCols matrix into groups: group g ends before row Ends[g], and a new block begins
	// there. Nil means one group. Not to be modified.
	Ends []int32
}

// New returns a [rows, cols] matrix for Quantize to fill: in the arena of ex, as activations need it, or, where ex is nil,
// in memory of its own, for weights.
func New(ex *tensor.Exec, f Format, d Direction, rows, cols int) Tensor {
	return NewIn(arenaOf(ex), f, d, rows, cols)
}

// NewIn is New in an arena; nil means memory of its own.
func NewIn(a *tensor.Arena, f Format, d Direction, rows, cols int) Tensor {
	t := Tensor{Format: f, Blocks: d, Codes: alloc(a, rows, cols)}
	if d == AlongRows {
		t.Scales = alloc(a, rows, blocks(cols))
	} else {
		t.Scales = alloc(a, blocks(rows), cols)
	}
	return t
}

// NewGrouped returns a matrix of the given columns with blocks AlongCols that begin anew at each group of rows, such as
// the tokens of each expert; ex as in New, ends as in Tensor.Ends, the last of them the number of rows.
func NewGrouped(ex *tensor.Exec, f Format, cols int, ends []int32) Tensor {
	return NewGroupedIn(arenaOf(ex), f, cols, ends)
}

// NewGroupedIn is NewGrouped in an arena; nil means memory of its own.
func NewGroupedIn(a *tensor.Arena, f Format, cols int, ends []int32) Tensor {
	rows, scales := 0, 0
	for g := range ends {
		lo, hi := group(ends, g)
		rows, scales = hi, scales+blocks(hi-lo)
	}
	return Tensor{Format: f, Blocks: AlongCols, Codes: alloc(a, rows, cols), Scales: alloc(a, scales, cols), Ends: ends}
}

func arenaOf(ex *tensor.Exec) *tensor.Arena {
	if ex == nil {
		return nil
	}
	return &ex.Arena
}

func alloc(a *tensor.Arena, rows, cols int) tensor.Tensor {
	if a == nil {
		return tensor.New(tensor.UINT8, rows, cols)
	}
	return a.New(tensor.UINT8, rows, cols)
}

// blocks returns the number of blocks that n elements take.
func blocks(n int) int { return (n + BlockSize - 1) / BlockSize }

// group returns the rows of group g.
func group(ends []int32, g int) (lo, hi int) {
	if g > 0 {
		lo = int(ends[g-1])
	}
	if hi = int(ends[g]); hi < lo {
		panic(fmt.Sprintf("mx: group %d ends at row %d, before it begins at %d", g, hi, lo))
	}
	return lo, hi
}

// Rows returns the number of rows.
func (t Tensor) Rows() int { return t.Codes.Dim(0) }

// Cols returns the number of columns.
func (t Tensor) Cols() int { return t.Codes.Dim(1) }

// RowSlice returns rows [lo, hi) of a matrix with blocks AlongRows, sharing memory.
func (t Tensor) RowSlice(lo, hi int) Tensor {
	if t.Blocks != AlongRows {
		panic("mx: any rows can be taken only of a matrix with blocks along rows; use Group")
	}
	t.Codes, t.Scales = t.Codes.Slice(lo, hi), t.Scales.Slice(lo, hi)
	return t
}

// Group returns the rows of group g of a matrix with Ends, sharing memory.
func (t Tensor) Group(g int) Tensor {
	first := 0
	for i := range g {
		lo, hi := group(t.Ends, i)
		first += blocks(hi - lo)
	}
	lo, hi := group(t.Ends, g)
	t.Codes, t.Scales, t.Ends = t.Codes.Slice(lo, hi), t.Scales.Slice(first, first+blocks(hi-lo)), nil
	return t
}

// Operand returns the matrix as products take it, the contracted dimension along its rows: the matrix itself for
// AlongRows, its transpose for AlongCols. Only 8-bit formats can be multiplied, and only one group.
func (t Tensor) Operand() tensor.Scaled {
	s := t.stored()
	if t.Blocks == AlongCols {
		if t.Ends != nil {
			panic("mx: a matrix in groups has no single operand; use Group")
		}
		s.Codes, s.Scales = s.Codes.T(), s.Scales.T()
	}
	return s
}

// stored returns the matrix as it lies in memory, whatever the direction of its blocks.
func (t Tensor) stored() tensor.Scaled {
	return tensor.Scaled{Codes: t.Codes.Mat(), Scales: t.Scales.Mat(), Format: t.Format.codeFormat()}
}

// codeFormat is the name of a format in package tensor.
func (f Format) codeFormat() tensor.CodeFormat {
	switch f {
	case E4M3:
		return tensor.E4M3
	case E5M2:
		return tensor.E5M2
	case INT8:
		return tensor.INT8
	}
	panic(fmt.Sprintf("mx: products take e4m3, e5m2 or int8, not %v", f))
}

// check panics unless the fields fit each other and a matrix of rows by cols.
func (t Tensor) check(d Direction, rows, cols int) {
	scaleRows, scaleCols := rows, blocks(cols)
	if d == AlongCols {
		scaleRows, scaleCols = blocks(rows), cols
	}
	if t.Ends != nil {
		scaleRows = 0
		for g := range t.Ends {
			lo, hi := group(t.Ends, g)
			scaleRows += blocks(hi - lo)
		}
	}
	switch {
	case t.Blocks != d:
		panic(fmt.Sprintf("mx: blocks %v where they must lie %v", t.Blocks, d))
	case t.Ends != nil && (d == AlongRows || len(t.Ends) == 0 && rows > 0 || len(t.Ends) > 0 && int(t.Ends[len(t.Ends)-1]) != rows):
		panic(fmt.Sprintf("mx: groups ending at %v in %d rows with blocks %v", t.Ends, rows, d))
	case t.Rows() != rows || t.Cols() != cols:
		panic(fmt.Sprintf("mx: [%d, %d] where [%d, %d] is needed", t.Rows(), t.Cols(), rows, cols))
	case t.Scales.Dim(0) != scaleRows || t.Scales.Dim(1) != scaleCols:
		panic(fmt.Sprintf("mx: scales %v of a [%d, %d] matrix with blocks %v", t.Scales.Dims(), rows, cols, d))
	}
}
