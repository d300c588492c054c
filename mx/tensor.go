package mx

// The quantized matrix: codes, scales, and the direction in which its blocks lie.

import (
	"fmt"

	"spmoe/tensor"
)

// Direction says along which dimension of a matrix the blocks lie. Products contract along the
// blocks.
type Direction uint8

// The directions.
const (
	AlongRows Direction = iota // the sum of a product runs along rows: a block of OCP MX is 32 neighbours in a row
	AlongCols                  // it runs along columns
)

func (d Direction) String() string {
	if d == AlongRows {
		return "along rows"
	}
	return "along columns"
}

// Tensor is a quantized matrix. Element (i, j) is decode(Codes[i, j]) times the scale of its block
// and, if the format has one, that of its group.
type Tensor struct {
	Format Format
	Blocks Direction
	// Codes is UINT8 [rows, cols], or [rows, cols/2] if they are packed: the same layout for both
	// directions.
	Codes tensor.Tensor
	// Scales has one scale for each block: [block rows, block columns], UINT8 or FP32. For OCP MX
	// that is [rows, ceil(cols/32)] along rows and [blocks, cols] along columns. The blocks of each
	// group of rows follow those of the group before.
	Scales tensor.Tensor
	// Ends cuts the rows into groups: group g ends before row Ends[g], and a new block begins
	// there. Nil means one group. Not to be modified.
	Ends []int32
	// Amax is FP32 [groups]: the largest finite magnitude of each group, from which its scale
	// follows. It is the zero Tensor if the format has no such scale.
	Amax tensor.Tensor
}

// New returns a [rows, cols] matrix for Quantize to fill: in the arena of ex, as activations need
// it, or, where ex is nil, in memory of its own, for weights.
func New(ex *tensor.Exec, f Format, d Direction, rows, cols int) Tensor {
	return NewIn(arenaOf(ex), f, d, rows, cols)
}

// NewIn is New in an arena; nil means memory of its own.
func NewIn(a *tensor.Arena, f Format, d Direction, rows, cols int) Tensor {
	return newTensor(a, f, d, rows, cols, nil)
}

// NewGrouped returns a matrix of the given columns with new blocks at the beginning of each group
// of rows, such as the tokens of each expert; ex as in New, ends as in Tensor.Ends, the last of
// them the number of rows.
func NewGrouped(ex *tensor.Exec, f Format, d Direction, cols int, ends []int32) Tensor {
	return NewGroupedIn(arenaOf(ex), f, d, cols, ends)
}

// NewGroupedIn is NewGrouped in an arena; nil means memory of its own.
func NewGroupedIn(a *tensor.Arena, f Format, d Direction, cols int, ends []int32) Tensor {
	rows := 0
	if len(ends) > 0 {
		rows = int(ends[len(ends)-1])
	}
	if d == AlongRows && f.Block[0] == 1 && !f.TensorScale {
		ends = nil // no block reaches into another row
	} else if ends == nil {
		ends = []int32{}
	}
	return newTensor(a, f, d, rows, cols, ends)
}

func newTensor(a *tensor.Arena, f Format, d Direction, rows, cols int, ends []int32) Tensor {
	f.validate()
	if cols%f.perByte() != 0 {
		panic(fmt.Sprintf("mx: %d columns of %s, which has %d in a byte", cols, f.Name, f.perByte()))
	}
	t := Tensor{Format: f, Blocks: d, Ends: ends, Codes: alloc(a, tensor.UINT8, rows, cols/f.perByte())}
	_, across := t.Extents()
	t.Scales = alloc(a, f.Scale.dtype(), t.blockRows(rows), ceilDiv(cols, across))
	if f.TensorScale {
		t.Amax = alloc(a, tensor.FP32, t.groups())
	}
	return t
}

func arenaOf(ex *tensor.Exec) *tensor.Arena {
	if ex == nil {
		return nil
	}
	return &ex.Arena
}

func alloc(a *tensor.Arena, dtype tensor.DType, dims ...int) tensor.Tensor {
	if a == nil {
		return tensor.New(dtype, dims...)
	}
	return a.New(dtype, dims...)
}

// ceilDiv returns how many pieces of at most size elements n elements take.
func ceilDiv(n, size int) int { return (n + size - 1) / size }

// Extents returns the rows and columns of a block in memory.
func (t Tensor) Extents() (rows, cols int) {
	if t.Blocks == AlongRows {
		return t.Format.Block[0], t.Format.Block[1]
	}
	return t.Format.Block[1], t.Format.Block[0]
}

// groups returns the number of groups.
func (t Tensor) groups() int {
	if t.Ends == nil {
		return 1
	}
	return len(t.Ends)
}

// blockRows returns how many rows of blocks a matrix of that many rows has.
func (t Tensor) blockRows(rows int) int {
	height, _ := t.Extents()
	if t.Ends == nil {
		return ceilDiv(rows, height)
	}
	n := 0
	for g := range t.Ends {
		lo, hi := group(t.Ends, g)
		n += ceilDiv(hi-lo, height)
	}
	return n
}

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
func (t Tensor) Cols() int { return t.Codes.Dim(1) * t.Format.perByte() }

// RowSlice returns rows [lo, hi) of a matrix of one group whose blocks lie in single rows, sharing
// memory.
func (t Tensor) RowSlice(lo, hi int) Tensor {
	if height, _ := t.Extents(); height != 1 || t.Ends != nil {
		panic("mx: any rows can be taken only of a matrix with blocks along rows; use Group")
	}
	t.Codes, t.Scales = t.Codes.Slice(lo, hi), t.Scales.Slice(lo, hi)
	return t
}

// Group returns the rows of group g of a matrix with Ends, sharing memory.
func (t Tensor) Group(g int) Tensor {
	height, _ := t.Extents()
	first := 0
	for i := range g {
		lo, hi := group(t.Ends, i)
		first += ceilDiv(hi-lo, height)
	}
	lo, hi := group(t.Ends, g)
	t.Codes, t.Scales, t.Ends = t.Codes.Slice(lo, hi), t.Scales.Slice(first, first+ceilDiv(hi-lo, height)), nil
	if t.Amax.Valid() {
		t.Amax = t.Amax.Slice(g, g+1)
	}
	return t
}

// GroupSlice returns rows [lo, hi), all of group g, sharing memory: any rows where blocks lie in
// single rows, or those of the whole group.
func (t Tensor) GroupSlice(g, lo, hi int) Tensor {
	if t.Ends == nil {
		return t.RowSlice(lo, hi)
	}
	first, last := group(t.Ends, g)
	t = t.Group(g)
	if lo == first && hi == last {
		return t
	}
	return t.RowSlice(lo-first, hi-first)
}

// Turned returns a matrix whose blocks are as high as wide with its blocks in direction d, sharing
// memory: it serves products along both dimensions.
func (t Tensor) Turned(d Direction) Tensor {
	if t.Format.Block[0] != t.Format.Block[1] {
		panic(fmt.Sprintf("mx: blocks of %v elements cannot be turned", t.Format.Block))
	}
	t.Blocks = d
	return t
}

// Operand returns a matrix of OCP MX as products take it, the contracted dimension along its rows:
// the matrix itself for AlongRows, its transpose for AlongCols. It must be one group.
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
	if !t.Format.isMX() {
		panic(fmt.Sprintf("mx: %v is not a format of OCP MX", t.Format))
	}
	return tensor.Scaled{Codes: t.Codes.Mat(), Scales: t.Scales.Mat(), Element: t.Format.Element}
}

// check panics unless the fields fit each other and a matrix of rows by cols.
func (t Tensor) check(d Direction, rows, cols int) {
	_, across := t.Extents()
	switch {
	case t.Blocks != d:
		panic(fmt.Sprintf("mx: blocks %v where they must lie %v", t.Blocks, d))
	case t.Ends != nil && (len(t.Ends) == 0 && rows > 0 || len(t.Ends) > 0 && int(t.Ends[len(t.Ends)-1]) != rows):
		panic(fmt.Sprintf("mx: groups ending at %v in %d rows with blocks %v", t.Ends, rows, d))
	case t.Rows() != rows || t.Cols() != cols:
		panic(fmt.Sprintf("mx: [%d, %d] where [%d, %d] is needed", t.Rows(), t.Cols(), rows, cols))
	case t.Scales.Dim(0) != t.blockRows(rows) || t.Scales.Dim(1) != ceilDiv(cols, across):
		panic(fmt.Sprintf("mx: scales %v of a [%d, %d] matrix with blocks %v", t.Scales.Dims(), rows, cols, d))
	}
}
