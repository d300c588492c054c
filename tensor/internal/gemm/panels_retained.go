package gemm

// A right operand that several products share is packed once.

import (
	"fmt"
	"unsafe"
)

// retainedUnit is a multiple of the elements along k that any tier packs together.
const retainedUnit = 64

// Retained is the right operand b of several products, and room for its panels. The first product
// that needs panels packs all of b. Its elements must not change between Set and the last product.
// Products that read b in place, and kernels without panels, do not use the room.
type Retained struct {
	b      View
	room   unsafe.Pointer
	bytes  int
	packed bool
}

// RetainedBytes returns the room that a b of [k, n] with elements of elem bytes needs in any tier.
func RetainedBytes(k, n, elem int) int {
	const widest, longest = 32, 2 * tileElements
	return (k+longest)*max(elem, 4)*(n+widest) + 2*line
}

// NewRetained returns an operand that is not set, with room for its panels.
func NewRetained(room []byte) Retained {
	return Retained{room: unsafe.Pointer(unsafe.SliceData(room)), bytes: len(room)}
}

// Set makes b the operand.
func (r *Retained) Set(b View) { r.b, r.packed = b, false }

// holds reports whether the panels of the operand serve for its part b: one that begins at its
// first element and cuts no step of a panel.
func (r *Retained) holds(b View) bool {
	return b.Ptr == r.b.Ptr && b.RowStride == r.b.RowStride && b.ColStride == r.b.ColStride &&
		(b.Rows == r.b.Rows || b.Rows < r.b.Rows && b.Rows%retainedUnit == 0) && b.Cols <= r.b.Cols
}

// BF16Retained computes c = a·b, or c += a·b if accumulate, as BF16Times does. It uses the panels
// of r if b is a part of r that begins at its first element.
func BF16Retained(s *Scratch, c, a, b View, r *Retained, accumulate bool) {
	if check(c, a, b) {
		s.kernels().bf16(s, c, a, b, mode{add: accumulate, retained: r.serving(b)})
	}
}

// FP32Retained is BF16Retained for FP32 operands.
func FP32Retained(s *Scratch, c, a, b View, r *Retained, accumulate bool) {
	if check(c, a, b) {
		s.kernels().fp32(s, c, a, b, mode{add: accumulate, retained: r.serving(b)})
	}
}

// serving returns r if its panels serve for b, and nil otherwise.
func (r *Retained) serving(b View) *Retained {
	if r.holds(b) {
		return r
	}
	return nil
}

// panels returns the packed operand, as panels of width columns, and the steps of a panel.
func (r *Retained) panels(s *Scratch, p *packing, width int) (ptr unsafe.Pointer, steps int) {
	b := operand{View: r.b.transposed()}
	ptr = unsafe.Add(r.room, -int(uintptr(r.room))&(line-1))
	steps = p.steps(b.Cols)
	if r.packed {
		return ptr, steps
	}
	if need := p.columnPanelBytes(b, width) + 2*line; need > r.bytes {
		panic(fmt.Sprintf("gemm: panels of [%d, %d] take %d bytes, there is room for %d", r.b.Rows, r.b.Cols, need, r.bytes))
	}
	p.packColumns(s, ptr, b, width)
	r.packed = true
	return ptr, steps
}
