package gemm

// Operands as they lie in memory.

import "spmoe/tensor/format"

// operand is a or bᵀ in memory: rows along k, of plain elements or of 8-bit codes.
type operand struct {
	View
	scales View
	lookup *lookup // nil: plain elements
}

// lengthwise reports whether codes and scales are both contiguous along k.
func (o operand) lengthwise() bool { return o.rowMajor() && (o.lookup == nil || o.scales.rowMajor()) }

// part returns n rows from row i on. An element has elem bytes.
func (o operand) part(elem, i, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, i, 0, n, o.scales.Cols)
	}
	o.View = o.slice(elem, i, 0, n, o.Cols)
	return o
}

// along returns n elements of every row from k on. k is a multiple of the block length.
func (o operand) along(elem, k, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, 0, k/format.MXBlock, o.Rows, (n+format.MXBlock-1)/format.MXBlock)
	}
	o.View = o.slice(elem, 0, k, o.Rows, n)
	return o
}

// scaled converts the operand back to a Scaled.
func (o operand) scaled() Scaled { return Scaled{o.View, o.scales, o.lookup.element} }
