package main

// The end of products with few rows of a. The lanes of many sums are added up at a time. The totals
// are stored row by row. Stores are several times as fast as scatters.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// finish adds up the lanes of each sum and stores the totals, four or eight for each row of a.
// Totals past the columns are not used.
func (k *directKernel) finish() {
	fn, sum := k.fn, k.steps
	fn.I("MOVQ", k.t.Field("direct_sum"), sum)
	fn.I("ADDQ", k.t.Field("direct_moved+moves_sum"), sum)
	var all, totals []asmgen.Vec
	for _, s := range k.sums {
		all = append(all, s...)
	}
	for i := 0; i < len(all); i += 16 {
		totals = append(totals, k.total(all[i:min(i+16, len(all))]))
	}
	perRow := (k.columns + 3) / 4 * 4
	for i := 0; i < k.rows; i += 16 / perRow {
		n := min(16/perRow, k.rows-i)
		v := k.spread(totals, i*k.columns, n, perRow, all[1+i*perRow/16]) // whose sum is in a total
		for r := range n {
			switch {
			case r == 0 && perRow == 4:
				fn.I("VMOVUPS", v.X(), sum.At(0))
			case r == 0:
				fn.I("VMOVUPS", v.Y(), sum.At(0))
			case perRow == 4:
				fn.I("VEXTRACTF32X4", asmgen.Imm(int64(r)), v, sum.At(0))
			default:
				fn.I("VEXTRACTF64X4", asmgen.Imm(1), v, sum.At(0))
			}
			fn.I("ADDQ", k.t.Field("direct_sumStride"), sum)
		}
	}
}

// spread returns a vector with n rows of totals at a distance of perRow lanes. The first row starts
// at total number first.
func (k *directKernel) spread(totals []asmgen.Vec, first, n, perRow int, v asmgen.Vec) asmgen.Vec {
	low, high := first/16, (first+n*k.columns-1)/16
	if k.columns == perRow && first%16 == 0 {
		return totals[low]
	}
	index := make([]uint32, 16)
	for r := range n {
		for j := range k.columns {
			index[r*perRow+j] = uint32(first%16 + r*k.columns + j)
		}
	}
	k.fn.I("VMOVUPS", k.f.Data32(fmt.Sprintf("spread%dx%dFrom%d", k.rows, k.columns, first), index...), v)
	if low == high {
		k.fn.I("VPERMPS", totals[low], v, v)
	} else {
		k.fn.I("VPERMI2PS", totals[high], totals[low], v)
	}
	return v
}

// total returns a vector whose lane i is the sum of the lanes of vs[i]. It overwrites vs. Every
// four lanes are summed as (0+2)+(1+3). The resulting four sums are summed as (0+1)+(2+3).
func (k *directKernel) total(vs []asmgen.Vec) asmgen.Vec {
	fn := k.fn
	temp := fn.Z()
	defer fn.Free(temp)
	merge := func(vs []asmgen.Vec, low, high string, imm ...asmgen.Operand) []asmgen.Vec {
		var out []asmgen.Vec
		for i := 0; i < len(vs); i += 2 {
			x, y := vs[i], vs[min(i+1, len(vs)-1)]
			ops := func(n int) []asmgen.Operand {
				if len(imm) > 0 {
					return []asmgen.Operand{imm[n], y, x}
				}
				return []asmgen.Operand{y, x}
			}
			fn.I(low, append(ops(0), temp)...)
			fn.I(high, append(ops(1), x)...)
			fn.I("VADDPS", temp, x, x)
			out = append(out, x)
		}
		return out
	}
	vs = merge(vs, "VUNPCKLPS", "VUNPCKHPS")
	vs = merge(vs, "VUNPCKLPD", "VUNPCKHPD")
	vs = merge(vs, "VSHUFF32X4", "VSHUFF32X4", asmgen.Imm(0x88), asmgen.Imm(0xdd))
	vs = merge(vs, "VSHUFF32X4", "VSHUFF32X4", asmgen.Imm(0x88), asmgen.Imm(0xdd))
	return vs[0]
}
