package tensorcore

//go:generate go run ./_asm

// The choice of kernels by instruction tier.

import (
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/exact"
)

// A chainFunc adds blocks of products to the sums of a few rows and the columns of a panel. It
// stops before a block with a lane that it cannot compute, and returns the number of blocks that
// are left. See _asm/chain.go.
type chainFunc func(c, left, values *float32, exponents *uint32, spill *float32, blocks int) (rest int)

// kernels are those of a tier, for panels of some columns and groups of some rows.
type kernels struct {
	columns, rows                 int
	bf16, hopperFP8, blackwellFP8 chainFunc // nil: plain Go
	// split is splitGeneric.
	split func(values []float32, exponents []uint32, leasts []int32, from unsafe.Pointer, isBF16 bool, bias int)
	// promote adds round(sums·a)·b to totals, with one rounding. There is a factor b per column.
	promote func(totals, sums []float32, a float32, b []float32)
}

// chain returns the kernel of a unit, or nil.
func (k *kernels) chain(u Unit) chainFunc {
	u.Name, u.Model = "", false
	switch u {
	case Unit{Terms: 16, Fraction: 25, Mantissa: 23}:
		return k.bf16
	case Unit{Terms: 32, Fraction: 13, Mantissa: 13}:
		return k.hopperFP8
	case Unit{Terms: 32, Fraction: 25, Mantissa: 23}:
		return k.blackwellFP8
	}
	return nil
}

var generic = &kernels{columns: 16, rows: 2, split: splitGeneric, promote: promoteGeneric}

func promoteGeneric(totals, sums []float32, a float32, b []float32) {
	for i, s := range sums {
		totals[i] = exact.FMA(float32(s*a), b[i], totals[i])
	}
}

// active are the kernels in use. They are chosen once, and only tests replace them.
var active = cpu.Choose("tensor cores", table)
