package gemm

// Operands as memory holds them.

import "spmoe/tensor/format"

// operand is a or bᵀ in memory: rows along k, of elements as they are or of 8-bit codes.
type operand struct {
	View
	scales View
	lookup *lookup // nil: elements
}

// lengthwise says whether neighbours in memory are neighbours along k, in codes and scales alike.
func (o operand) lengthwise() bool { return o.rowMajor() && (o.lookup == nil || o.scales.rowMajor()) }

// part is n rows from row i on; an element has elem bytes.
func (o operand) part(elem, i, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, i, 0, n, o.scales.Cols)
	}
	o.View = o.slice(elem, i, 0, n, o.Cols)
	return o
}

// along is n elements of every row from k on, a multiple of the block length.
func (o operand) along(elem, k, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, 0, k/format.MXBlock, o.Rows, (n+format.MXBlock-1)/format.MXBlock)
	}
	o.View = o.slice(elem, 0, k, o.Rows, n)
	return o
}

// scaled is the operand as it was.
func (o operand) scaled() Scaled { return Scaled{o.View, o.scales, o.lookup.element} }
