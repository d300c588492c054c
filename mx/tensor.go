package mx

// The quantized matrix: codes, scales and the direction of its blocks.

import (
	"fmt"

	"spmoe/tensor"
)

// Direction says along which dimension of a matrix the blocks run. Products contract along the
// blocks.
type Direction uint8

// The directions.
const (
	// Products contract along rows: a block of OCP MX is 32 neighbors in a row.
	AlongRows Direction = iota
	AlongCols           // Products contract along columns.
)

// String returns "along rows" or "along columns".
func (d Direction) String() string {
	if d == AlongRows {
		return "along rows"
	}
	return "along columns"
}

// Tensor is a quantized matrix. The value of element (i, j) is decode(Codes[i, j]) times the scale
// of its block. Formats with group scales also multiply it by the scale of its group.
type Tensor struct {
	Format Format
	Blocks Direction
	// Codes is UINT8 [rows, cols], or [rows, cols/2] if packed. The layout is the same for both
	// directions.
	Codes tensor.Tensor
	// Scales has one scale per block: [block rows, block columns], UINT8 or FP32. For OCP MX that
	// is [rows, ceil(cols/32)] along rows and [blocks, cols] along columns. The blocks of each
	// group of rows follow those of the previous group. With ScaleNone it is [rows, 0].
	Scales tensor.Tensor
	// Ends divides the rows into groups. Group g ends before row Ends[g], and a new block begins
	// there. Nil means one group. Do not modify it.
	Ends []int32
	// Amax is FP32 [groups]: the largest finite magnitude of each group, which determines its
	// scale. It is the zero Tensor if the format has no group scales.
	Amax tensor.Tensor
}

// New returns a [rows, cols] matrix for Quantize to fill. Activations pass ex and get memory in its
// arena. Weights pass nil and get memory of their own.
func New(ex *tensor.Exec, f Format, d Direction, rows, cols int) Tensor {
	return NewIn(arenaOf(ex), f, d, rows, cols)
}

// NewIn is New in the given arena. Nil means memory of its own.
func NewIn(a *tensor.Arena, f Format, d Direction, rows, cols int) Tensor {
	return newTensor(a, f, d, rows, cols, nil)
}

// NewGrouped returns a matrix for rows in groups, such as the tokens of each expert. Each group
// begins a new block. ex is as in New and ends as in Tensor.Ends. The last of ends is the number of
// rows.
func NewGrouped(ex *tensor.Exec, f Format, d Direction, cols int, ends []int32) Tensor {
	return NewGroupedIn(arenaOf(ex), f, d, cols, ends)
}

// NewGroupedIn is NewGrouped in the given arena. Nil means memory of its own.
func NewGroupedIn(a *tensor.Arena, f Format, d Direction, cols int, ends []int32) Tensor {
	rows := 0
	if len(ends) > 0 {
		rows = int(ends[len(ends)-1])
	}
	if d == AlongRows && f.Block[0] == 1 && !f.TensorScale {
		ends = nil // no block extends over several rows
	} else if ends == nil {
		ends = []int32{}
	}
	return newTensor(a, f, d, rows, cols, ends)
}

func newTensor(a *tensor.Arena, f Format, d Direction, rows, cols int, ends []int32) Tensor {
	if err := f.Validate(); err != nil {
		panic("mx: " + err.Error())
	}
	if cols%f.perByte() != 0 {
		panic(fmt.Sprintf("mx: %d columns of %s: a byte holds %d codes, and a row must fill whole bytes", cols, f.Name, f.perByte()))
	}
	t := Tensor{Format: f, Blocks: d, Ends: ends, Codes: alloc(a, tensor.UINT8, rows, cols/f.perByte())}
	t.Scales = alloc(a, f.Scale.dtype(), t.blockRows(rows), t.scaleCols(cols))
	if f.TensorScale {
		t.Amax = alloc(a, tensor.FP32, t.groups())
	}
	return t
}

// Like returns a matrix of t's format, direction and columns, with one group, in memory that was
// laid out by t's kind of matrix with that many rows.
func (t Tensor) Like(rows int, codes, scales, amax []byte) (u Tensor) {
	u = Tensor{Format: t.Format, Blocks: t.Blocks}
	height, _ := t.BlockShape()
	blocks := ceilDiv(rows, height)
	u.Codes = tensor.FromBytes(codes, tensor.UINT8, rows, t.Codes.Dim(1))
	u.Scales = tensor.FromBytes(scales, t.Scales.DType(), blocks, t.Scales.Dim(1))
	if t.Amax.Valid() {
		u.Amax = tensor.FromBytes(amax, tensor.FP32, 1)
	}
	return u
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

// ceilDiv returns ceil(n/size).
func ceilDiv(n, size int) int { return (n + size - 1) / size }

// BlockShape returns the rows and columns of a block in memory.
func (t Tensor) BlockShape() (rows, cols int) {
	if t.Blocks == AlongRows {
		return t.Format.Block[0], t.Format.Block[1]
	}
	return t.Format.Block[1], t.Format.Block[0]
}

// scaleCols returns the number of scales in a row of blocks that has the given number of columns.
func (t Tensor) scaleCols(cols int) int {
	if t.Format.Scale == ScaleNone {
		return 0
	}
	_, across := t.BlockShape()
	return ceilDiv(cols, across)
}

// groups returns the number of groups.
func (t Tensor) groups() int {
	if t.Ends == nil {
		return 1
	}
	return len(t.Ends)
}

// blockRows returns the number of rows of blocks in a matrix of the given number of rows.
func (t Tensor) blockRows(rows int) int {
	height, _ := t.BlockShape()
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
		panic(fmt.Sprintf("mx: group %d ends at row %d, before its first row %d: ends must not decrease", g, hi, lo))
	}
	return lo, hi
}

// Rows returns the number of rows.
func (t Tensor) Rows() int { return t.Codes.Dim(0) }

// Cols returns the number of columns.
func (t Tensor) Cols() int { return t.Codes.Dim(1) * t.Format.perByte() }

// RowSlice returns rows [lo, hi) and shares their memory. The matrix must have one group, and the
// rows must be whole blocks.
func (t Tensor) RowSlice(lo, hi int) Tensor {
	height, _ := t.BlockShape()
	if t.Ends != nil || lo%height != 0 || hi%height != 0 && hi != t.Rows() {
		panic("mx: RowSlice needs one group and whole blocks: use Group")
	}
	t.Codes, t.Scales = t.Codes.Slice(lo, hi), t.Scales.Slice(lo/height, ceilDiv(hi, height))
	return t
}

// ColSlice returns a copy of columns [lo, hi) in the arena of ex. The matrix must have one group,
// and the columns must be whole blocks and bytes.
func (t Tensor) ColSlice(ex *tensor.Exec, lo, hi int) Tensor {
	_, width := t.BlockShape()
	if n := t.Format.perByte(); t.Ends != nil || lo%width != 0 || hi%width != 0 && hi != t.Cols() || lo%n != 0 || hi%n != 0 {
		panic("mx: ColSlice needs one group, whole blocks and whole bytes")
	}
	c := t
	c.Codes = colSlice(ex, t.Codes, lo/t.Format.perByte(), hi/t.Format.perByte())
	if t.Format.Scale != ScaleNone {
		c.Scales = colSlice(ex, t.Scales, lo/width, ceilDiv(hi, width))
	}
	return c
}

// colSlice returns a copy of columns [lo, hi).
func colSlice(ex *tensor.Exec, t tensor.Tensor, lo, hi int) tensor.Tensor {
	rows, cols, size := t.Dim(0), t.Dim(1), t.DType().Size()
	c := ex.New(t.DType(), rows, hi-lo)
	if ex.Dry() {
		return c
	}
	from, to := t.Bytes(), c.Bytes()
	for i := range rows {
		copy(to[i*(hi-lo)*size:(i+1)*(hi-lo)*size], from[(i*cols+lo)*size:])
	}
	return c
}

// Whole returns a matrix whose rows are one group without its Ends.
func (t Tensor) Whole() Tensor {
	if t.Ends == nil {
		return t
	}
	if len(t.Ends) != 1 {
		panic("mx: a matrix in several groups is not one: use Group")
	}
	return t.Group(0)
}

// Group returns the rows of group g of a matrix with Ends. It shares their memory.
func (t Tensor) Group(g int) Tensor {
	height, _ := t.BlockShape()
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

// WithBlocks returns the matrix with its blocks in direction d and shares its memory. The blocks
// must be square. One such matrix serves products along both dimensions.
func (t Tensor) WithBlocks(d Direction) Tensor {
	if t.Format.Block[0] != t.Format.Block[1] {
		panic(fmt.Sprintf("mx: blocks of %v elements cannot change direction: they must be square", t.Format.Block))
	}
	t.Blocks = d
	return t
}

// Operand returns a matrix of OCP MX as products take it, with the contracted dimension along its
// rows. That is the matrix itself for AlongRows and its transpose for AlongCols. An AlongCols
// matrix must have one group.
func (t Tensor) Operand() tensor.Scaled {
	s := t.stored()
	if t.Blocks == AlongCols {
		if t.Ends != nil {
			panic("mx: a matrix in several groups is not one operand: use Group")
		}
		s.Codes, s.Scales = s.Codes.T(), s.Scales.T()
	}
	return s
}

// stored returns the matrix in its memory layout, whatever the direction of its blocks.
func (t Tensor) stored() tensor.Scaled {
	if !t.Format.isMX() {
		panic(fmt.Sprintf("mx: %v is not a format of OCP MX with one byte per code", t.Format))
	}
	return tensor.Scaled{Codes: t.Codes.Mat(), Scales: t.Scales.Mat(), Element: t.Format.Element}
}

// check panics unless the fields are consistent and the matrix is rows by cols.
func (t Tensor) check(d Direction, rows, cols int) {
	switch {
	case t.Blocks != d:
		panic(fmt.Sprintf("mx: the blocks run %v, but must run %v", t.Blocks, d))
	case t.Ends != nil && (len(t.Ends) == 0 && rows > 0 || len(t.Ends) > 0 && int(t.Ends[len(t.Ends)-1]) != rows):
		panic(fmt.Sprintf("mx: groups end at %v, but the matrix has %d rows with blocks %v: the last group must end there", t.Ends, rows, d))
	case t.Rows() != rows || t.Cols() != cols:
		panic(fmt.Sprintf("mx: the matrix is [%d, %d], but must be [%d, %d]", t.Rows(), t.Cols(), rows, cols))
	case t.Scales.Dim(0) != t.blockRows(rows) || t.Scales.Dim(1) != t.scaleCols(cols):
		panic(fmt.Sprintf("mx: scales of shape %v do not fit a [%d, %d] matrix with blocks %v", t.Scales.Dims(), rows, cols, d))
	}
}
