package tensorcore

// Products of matrices. The bits are those of Plan.Dot for each element.

import "unsafe"

// What is packed at a time: elements along K, which are whole blocks and chains, rows of a, and
// columns of the result that share them.
const (
	chunk    = 128
	mostRows = 512
	mostCols = 512
)

// Room is the memory that Multiply works in.
type Room struct {
	*kernels
	left    []leftRow
	right   rightPanel
	packer  packer
	totals  []float32 // panel by panel, row by row
	sums    []float32 // of the chains of a panel, if the plan promotes
	spill   []float32
	terms   []Term
	factors []float32 // per column
}

// RoomBytes is the size of a Room.
func RoomBytes() int {
	n := 0
	newRoom(func(bytes int) unsafe.Pointer { n += bytes; return nil })
	return n
}

// NewRoom returns a Room in memory of RoomBytes bytes, aligned to 64. Nil means memory of its own.
func NewRoom(memory []byte) Room {
	if memory == nil {
		memory = make([]byte, RoomBytes())
	}
	return newRoom(func(bytes int) unsafe.Pointer {
		at := unsafe.Pointer(&memory[0])
		memory = memory[bytes:]
		return at
	})
}

func newRoom(bytes func(n int) unsafe.Pointer) Room {
	k := active
	return Room{
		kernels: k,
		left:    carve[leftRow](bytes, mostRows),
		right:   rightPanel{k.columns, carve[float32](bytes, chunk*k.columns), carve[uint32](bytes, chunk*k.columns/2)},
		packer: packer{kernels: k, leasts: carve[int32](bytes, mostRows), values: carve[float32](bytes, mostRows), exponents: carve[uint32](bytes, mostRows),
			rows: carve[leftRow](bytes, k.columns)},
		totals:  carve[float32](bytes, mostRows*mostCols),
		sums:    carve[float32](bytes, mostRows*k.columns),
		spill:   carve[float32](bytes, k.rows*k.columns),
		terms:   carve[Term](bytes, BlackwellFP8.Terms),
		factors: carve[float32](bytes, k.columns),
	}
}

// carve returns n elements of memory, or nil if there is none.
func carve[T any](bytes func(n int) unsafe.Pointer, n int) []T {
	var zero T
	const line = 64
	p := (*T)(bytes((n*int(unsafe.Sizeof(zero)) + line - 1) / line * line))
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, n)
}

// A Job is a product a·bᵀ.
type Job struct {
	Plan
	A, B     Source
	Continue bool // totals begin with out, and not with zero
}

// Multiply sets out[i·stride+j] to element (row+i, col+j) of the product, for i < rows and
// j < cols.
func (j *Job) Multiply(room *Room, out []float32, stride, row, rows, col, cols int) {
	for r := 0; r < rows; r += mostRows {
		for c := 0; c < cols; c += mostCols {
			t := tile{Job: j, Room: room, row: row + r, end: row + min(r+mostRows, rows), col: col + c, endCol: col + min(c+mostCols, cols)}
			to := out[r*stride+c:]
			t.clearTotals()
			if j.Continue {
				t.eachRow(to, stride, func(out, total []float32) { copy(total, out) })
			}
			if t.Unit == BlackwellFP4 {
				t.multiplyGroups()
			} else {
				t.multiply(0, j.partEnd(0, j.A.K))
			}
			t.eachRow(to, stride, func(out, total []float32) { copy(out, total) })
			t.addParts(to, stride)
		}
	}
}

// addParts adds the parts of K after the first one.
func (t *tile) addParts(out []float32, stride int) {
	for k := t.partEnd(0, t.A.K); k < t.A.K; {
		end := t.partEnd(k, t.A.K)
		t.clearTotals()
		t.multiply(k, end)
		t.eachRow(out, stride, func(out, total []float32) {
			for i, x := range total {
				out[i] += x
			}
		})
		k = end
	}
}

// A tile is a part of the result that fits into a Room.
type tile struct {
	*Job
	*Room
	row, end, col, endCol int
}

// padded returns the rows of the tile in whole groups of the kernels.
func (t *tile) padded() int {
	return (t.end - t.row + t.rows - 1) / t.rows * t.rows
}

// panel returns the totals of the panel that begins with column col.
func (t *tile) panel(col int) []float32 {
	n := t.padded() * t.columns
	i := (col - t.col) / t.columns
	return t.totals[i*n : (i+1)*n]
}

func (t *tile) clearTotals() {
	panels := (t.endCol - t.col + t.columns - 1) / t.columns
	clear(t.totals[:panels*t.padded()*t.columns])
}

// eachRow calls move for each row of each panel, with its elements in out and in the totals.
func (t *tile) eachRow(out []float32, stride int, move func(out, total []float32)) {
	for col := t.col; col < t.endCol; col += t.columns {
		totals, n := t.panel(col), min(t.columns, t.endCol-col)
		for r := range t.end - t.row {
			move(out[r*stride+col-t.col:][:n], totals[r*t.columns:][:n])
		}
	}
}

// multiply adds elements [first, last) along K to the totals.
func (t *tile) multiply(first, last int) {
	for k0, k1 := first, 0; k0 < last; k0 = k1 {
		k1 = min(k0+chunk, last)
		if rest := t.rest(last - first); rest > 0 && k0 == first {
			k1 = first + rest
		}
		n := (k1 - k0 + t.Terms - 1) / t.Terms * t.Terms
		left := t.left[:t.padded()]
		t.packing(&t.A, 0).packRows(left, t.row, t.end, k0, k1)
		right := &rightPanel{t.columns, t.right.values[:n*t.columns], t.right.exponents[:n*t.columns/2]}
		for col := t.col; col < t.endCol; col += t.columns {
			t.packing(&t.B, bias).packColumns(right, col, t.endCol, k0, k1)
			if t.Promote == 0 {
				t.chains(t.panel(col), left, n, right)
				continue
			}
			clear(t.sums)
			t.chains(t.sums, left, n, right)
			t.promote(t.panel(col), col, k0/chunk)
		}
	}
}

// packing returns the packer for an operand whose exponents have a bias.
func (t *tile) packing(s *Source, bias int) *packer {
	t.packer.Source, t.packer.bias = *s, bias
	return &t.packer
}

// chains adds n elements along K to the sums of a panel.
func (t *tile) chains(sums []float32, left []leftRow, n int, right *rightPanel) {
	for r := 0; r < len(left); r += t.rows {
		t.chain(sums[r*t.columns:(r+t.rows)*t.columns], left[r:r+t.rows], n, right)
	}
}

// chain adds n elements along K to the sums of the rows of a kernel.
func (t *tile) chain(sums []float32, left []leftRow, n int, right *rightPanel) {
	kernel := t.Room.kernels.chain(t.Unit)
	for k := 0; k < n; k += t.Terms {
		if kernel != nil {
			rest := kernel(&sums[0], &left[0].values[k], &right.values[k*t.columns], &right.exponents[k*t.columns/2], &t.spill[0], (n-k)/t.Terms)
			if rest == 0 {
				return
			}
			k = n - rest*t.Terms
		}
		for i := range sums {
			sums[i] = t.block(sums[i], &left[i/t.columns], i%t.columns, k, right)
		}
	}
}

// block adds the products [k, k+Terms) of a row and of column j of a panel to c.
func (t *tile) block(c float32, row *leftRow, j, k int, right *rightPanel) float32 {
	t.terms = t.terms[:0]
	for ; len(t.terms) < t.Terms; k++ {
		t.terms = append(t.terms, Product(row.element(k), right.element(j, k)))
	}
	return t.Add(c, t.terms)
}

// promote adds the sums of chain number run to the totals of a panel.
func (t *tile) promote(totals []float32, col, run int) {
	for c := range t.factors {
		t.factors[c] = 1
	}
	for r := range t.end - t.row {
		first := float32(1)
		if t.A.Scales.Type == ScaleFP32 {
			first = t.setFactors(t.row+r, col, run)
		}
		t.Room.kernels.promote(totals[r*t.columns:(r+1)*t.columns], t.sums[r*t.columns:(r+1)*t.columns], first, t.factors)
	}
}

// setFactors sets factors to the second factors of row's sums, and returns the first one, which all
// columns share.
func (t *tile) setFactors(row, col, run int) float32 {
	a, squares := t.A.Scales.FP32(row, run), t.A.Scales.Rows > 1 || t.B.Scales.Rows > 1
	for c := range min(len(t.factors), t.endCol-col) {
		b := t.B.Scales.FP32(col+c, run)
		if squares {
			b *= a
		}
		t.factors[c] = b
	}
	if squares {
		return 1
	}
	return a
}
