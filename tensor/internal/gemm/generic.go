package gemm

// The generic tier: plain Go for any CPU. Operands are packed as FP32 into panels of four rows or
// columns, so that registers hold the sums of a 4×4 tile.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

var genericKernels = kernels{
	bf16: sumPortable[uint16],
	bf16Rounded: func(s *Scratch, c, a, b View, m mode) {
		if !m.whole() {
			multiplyPortable[uint16](s, View{}, c, a, b, false)
			return
		}
		sums := strided(s.sums.atLeast(4*c.Rows*c.Cols), c.Rows, c.Cols, c.Cols, 1)
		sumPortable[uint16](s, sums, a, b, m)
		roundRows(c, sums)
	},
	fp32:     sumPortable[float32],
	peakBF16: peakScalar,
	peakFP32: peakScalar,
}

const (
	portableTile = 4   // rows and columns of a tile
	portableRows = 128 // rows of a that are packed at once
)

// quad is one step along k of a panel.
type quad [portableTile]float32

// sumPortable stores or adds a·b in c.
func sumPortable[T uint16 | float32](s *Scratch, c, a, b View, m mode) {
	if m.span == 0 && m.whole() {
		m.span = max(a.Cols, 1)
	}
	if m.span == 0 {
		multiplyPortable[T](s, c, View{}, a, b, m.add)
		return
	}
	elem := int(unsafe.Sizeof(*new(T)))
	s.eachSpan(c, a.Cols, m, func(dst View, i, j, k, n int) {
		if m.blocks != nil {
			promotePortable[T](s, dst, a, b, i, j, k, n, m.blocks)
			return
		}
		multiplyPortable[T](s, dst, View{}, a.slice(elem, i, k, dst.Rows, n), b.slice(elem, k, j, n, dst.Cols), false)
	})
}

// multiplyPortable computes sum = a·b or sum += a·b. If out is not empty, it computes the BF16 out
// = a·b instead.
func multiplyPortable[T uint16 | float32](s *Scratch, sum, out, a, b View, accumulate bool) {
	k := a.Cols
	panels := func(buf *buffer, n int) []quad {
		return unsafe.Slice((*quad)(buf.atLeast(n*k*int(unsafe.Sizeof(quad{})))), n*k)
	}
	bPanel := panels(&s.b, 1)
	columns := b.transposed()
	for i := 0; i < a.Rows; i += portableRows {
		rows := min(portableRows, a.Rows-i)
		aPanels := panels(&s.a, (rows+portableTile-1)/portableTile)
		for p := 0; p < rows; p += portableTile {
			packQuads[T](aPanels[p/portableTile*k:][:k], a, i+p, min(portableTile, rows-p))
		}
		for j := 0; j < b.Cols; j += portableTile {
			width := min(portableTile, b.Cols-j)
			packQuads[T](bPanel, columns, j, width)
			for p := 0; p < rows; p += portableTile {
				portableProduct(sum, out, i+p, j, min(portableTile, rows-p), width, aPanels[p/portableTile*k:][:k], bPanel, accumulate, s.Portable)
			}
		}
	}
}

// portableProduct computes the tile at (i, j). rows by columns of its elements exist. fused says
// that products are not rounded, as on other tiers.
func portableProduct(sum, out View, i, j, rows, columns int, a, b []quad, accumulate, fused bool) {
	var c [portableTile]quad
	if accumulate {
		for r := range rows {
			for q := range columns {
				c[r][q] = *at[float32](sum, i+r, j+q)
			}
		}
	}
	if fused {
		fusedSums(&c, a, b)
	} else {
		portableSums(&c, a, b)
	}
	for r := range rows {
		for q := range columns {
			if out.Ptr != nil {
				*at[uint16](out, i+r, j+q) = vec.ToBF16(c[r][q])
			} else {
				*at[float32](sum, i+r, j+q) = c[r][q]
			}
		}
	}
}

// portableSums adds a·b to c, step by step. It handles half the tile at a time because amd64 has no
// more registers.
func portableSums(c *[portableTile]quad, a, b []quad) {
	b = b[:len(a)]
	for half := 0; half < portableTile; half += 2 {
		c00, c01, c02, c03 := c[half][0], c[half][1], c[half][2], c[half][3]
		c10 := c[half+1][0]
		c11 := c[half+1][1]
		c12 := c[half+1][2]
		c13 := c[half+1][3]
		for k := range a {
			x, y, q := a[k][half], a[k][half+1], &b[k]
			c00 += x * q[0]
			c01 += x * q[1]
			c02 += x * q[2]
			c03 += x * q[3]
			c10 += y * q[0]
			c11 += y * q[1]
			c12 += y * q[2]
			c13 += y * q[3]
		}
		c[half] = quad{c00, c01, c02, c03}
		c[half+1] = quad{c10, c11, c12, c13}
	}
}

// packQuads packs rows [i, i+n) of v along its columns. BF16 pairs (k, k+1) are swapped (see the
// order of sums).
func packQuads[T uint16 | float32](dst []quad, v View, i, n int) {
	clear(dst)
	for r := range n {
		for k := range dst {
			switch x := any(at[T](v, i+r, k)).(type) {
			case *float32:
				dst[k][r] = *x
			case *uint16:
				dst[swapped(k, len(dst))][r] = vec.FromBF16(*x)
			}
		}
	}
}

// swapped returns the position of element k of n after the elements of each pair are swapped. An
// odd last element stays in place.
func swapped(k, n int) int {
	if k^1 < n {
		return k ^ 1
	}
	return k
}

func initial(c float32, accumulate bool) float32 {
	if accumulate {
		return c
	}
	return 0
}

// peakScalar runs eight independent chains of multiply-adds in registers.
func peakScalar(rounds int) float64 {
	const m, p = 0.999, 0.001
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for range rounds {
		s0, s1, s2, s3 = s0*m+p, s1*m+p, s2*m+p, s3*m+p
		s4, s5, s6, s7 = s4*m+p, s5*m+p, s6*m+p, s7*m+p
	}
	if s0+s1+s2+s3+s4+s5+s6+s7 < 0 {
		panic("gemm: sums of positive numbers are negative")
	}
	return 16 * float64(rounds)
}
