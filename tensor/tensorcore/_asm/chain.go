package main

// Chains of blocks. Each lane is an element of c.
//
// A product of two elements is exact in FP32. Multiplied by 2^(fraction-M) and converted to an
// integer toward zero, it is the aligned term: the conversion is the cut. M is the largest exponent
// in the lane, biased by 127.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// Lanes are computed here if M, biased, is in [least, most]. No power of two is then outside of the
// range of FP32, and products that underflow are below the cut.
const (
	least = 127 - 100
	most  = 127 + 100
)

// chunk is that of package tensorcore.
const chunk = 128

// zeroProduct is between the exponents of products and those of products with a factor of zero.
const zeroProduct = -1000

// step is the number of elements along k per round of a loop.
const step = 4

// half is the number of terms whose sum always fits into 32 bits at 25 fractional bits. Each is
// below 4.
const half = 16

// tile is the state of a chain.
type tile struct {
	*kernel
	unit
	c, left, values, exponents, spill asmgen.Reg
	at, count                         asmgen.Reg // of a loop along k: the left panel, and steps that are left

	scales, sums [][vectors]asmgen.Vec // by row
	bad          asmgen.Vec            // lanes that cannot be computed here have their sign bit set
}

func (m *machine) chain(u unit) {
	k := m.begin("chain"+u.name, fmt.Sprintf("chain%s%s adds blocks (> 0) of %d products to a tile of %d rows of c. It stops before a block that it cannot "+
		"compute and returns the number of blocks that are left.", u.name, m.name, u.terms, m.rows),
		asmgen.Arg("c", "*float32"), asmgen.Arg("left", "*float32"), asmgen.Arg("values", "*float32"), asmgen.Arg("exponents", "*uint32"),
		asmgen.Arg("spill", "*float32"), asmgen.Arg("blocks", "int"), asmgen.Result("rest", "int"))
	t := &tile{kernel: k, unit: u}
	m.Constant("chunk", chunk)
	t.c, t.left = k.Load("c"), k.Load("left")
	t.values, t.exponents, t.spill = k.Load("values"), k.Load("exponents"), k.Load("spill")
	blocks := k.Load("blocks")
	t.at, t.count = k.GP(), k.GP()
	k.I("VSTMXCSR", k.Slot("rest"))
	k.I("VLDMXCSR", k.word("towardZero", 0x7f80))
	stop := k.Label("stop")
	t.take()
	k.CountDown(blocks, func() {
		t.align()
		for first := 0; first < u.terms; first += half {
			t.add(first)
		}
		t.finish(stop)
		k.I("ADDQ", asmgen.Imm(4*u.terms), t.left)
	})
	k.Place(stop)
	k.I("VLDMXCSR", k.Slot("rest"))
	k.I("MOVQ", blocks, k.Slot("rest"))
	k.Return()
}

// take takes the registers of the tile.
func (t *tile) take() {
	for range t.m.rows {
		t.scales = append(t.scales, [vectors]asmgen.Vec(t.vecs(vectors)))
	}
	for range t.m.rows {
		t.sums = append(t.sums, [vectors]asmgen.Vec(t.vecs(vectors)))
	}
	t.bad = t.vec()
}

// value returns the memory of element k of a row of the left panel, a leftRow. Its exponents are
// elements from chunk on.
func (t *tile) value(row, k int) asmgen.Mem { return t.at.At(4 * (row*2*chunk + k)) }

// along prints a loop over n elements from element first of the left panel on. The body is for step
// of them, whose first is element 0.
func (t *tile) along(first, n int, body func()) {
	t.I("LEAQ", t.left.At(4*first), t.at)
	t.I("MOVQ", asmgen.Imm(int64(n/step)), t.count)
	t.CountDown(t.count, func() {
		body()
		t.I("ADDQ", asmgen.Imm(4*step), t.at)
	})
}

// vector returns the memory of vector v of a row of the tile at p.
func (t *tile) vector(p asmgen.Reg, row, v int) asmgen.Mem {
	return p.At((row*vectors + v) * t.m.bytes)
}

// each calls body for each vector of the tile.
func (t *tile) each(body func(row, v int)) {
	for row := range t.m.rows {
		for v := range vectors {
			body(row, v)
		}
	}
}

// align finds M and sets scales to 2^(fraction-M). Lanes of 16 bits alternate between the columns
// of the two vectors.
func (t *tile) align() {
	largest := make([]asmgen.Vec, t.m.rows)
	for row := range largest {
		largest[row] = t.sums[row][0] // free until add
	}
	for _, m := range largest {
		t.load(t.word("lowest", -1<<31|1<<15), m)
	}
	t.scratch(2, func(s []asmgen.Vec) {
		t.along(0, t.terms, func() {
			for k := range step {
				t.I("VMOVDQU"+t.suffix("64"), t.exponents.At(k*t.m.bytes), s[0])
				for row, m := range largest {
					t.I("VPBROADCASTD", t.value(row, chunk+k), s[1])
					t.I("VPADDW", s[0], s[1], s[1])
					t.I("VPMAXSW", s[1], m, m)
				}
			}
			t.I("ADDQ", asmgen.Imm(int64(step*t.m.bytes)), t.exponents)
		})
	})
	t.I("VXORPS", t.bad, t.bad, t.bad)
	t.scratch(3, func(s []asmgen.Vec) {
		t.each(func(row, v int) { t.alignVector(row, v, largest[row], s[0], s[1], s[2]) })
	})
}

// suffix returns the suffix of integer moves and bitwise instructions that AVX-512 has.
func (t *tile) suffix(s string) string {
	if t.m.bytes == 64 {
		return s
	}
	return ""
}

func (t *tile) alignVector(row, v int, largest, m, c, x asmgen.Vec) {
	scale := t.scales[row][v]
	if v == 0 {
		t.I("VPSLLD", asmgen.Imm(16), largest, m)
		t.I("VPSRAD", asmgen.Imm(16), m, m)
	} else {
		t.I("VPSRAD", asmgen.Imm(16), largest, m)
	}
	t.I("VMOVUPS", t.vector(t.c, row, v), c)
	t.I("VPADDD", c, c, c) // without its sign
	t.I("VPSRLD", asmgen.Imm(24), c, x)
	// zero: all products are zero and c is. Else the exponent must be in range.
	t.with("VPADDD", t.word("minusOne", -1), c, c)
	t.I("VPMAXSD", x, m, x)
	t.with("VPADDD", t.word("minusZeroProduct", -zeroProduct), m, m)
	t.I("VANDPS", m, c, c)
	t.with("VPADDD", t.word("aboveMost", 1<<31-1-most), x, m)
	t.I("VORPS", m, t.bad, t.bad)
	t.with("VPADDD", t.word("belowLeast", -least), x, m)
	t.I("VANDNPS", m, c, c)
	t.I("VORPS", c, t.bad, t.bad)
	t.with("VPMAXSD", t.word("least", least), x, x)
	t.I("VPSLLD", asmgen.Imm(23), x, x)
	t.load(t.word(fmt.Sprintf("scale%d", t.fraction), (2*127+t.fraction)<<23), scale)
	t.I("VPSUBD", x, scale, scale)
}

// load loads a constant into all lanes.
func (k *kernel) load(word asmgen.Mem, v asmgen.Vec) { k.I("VBROADCASTSS", word, v) }

// add adds the terms of half a block, or of a whole one of that size.
func (t *tile) add(first int) {
	t.each(func(row, v int) {
		s := t.sums[row][v]
		if first > 0 {
			t.I("VMOVUPS", s, t.vector(t.spill, row, v))
		}
		t.I("VXORPS", s, s, s)
	})
	t.scratch(vectors+1+vectors, func(s []asmgen.Vec) {
		b, a, p := s[:vectors], s[vectors], s[vectors+1:]
		t.along(first, half, func() {
			for k := range step {
				t.addTerm(k, b, a, p)
			}
			t.I("ADDQ", asmgen.Imm(int64(step*vectors*t.m.bytes)), t.values)
		})
	})
}

// addTerm adds element k along the sums.
func (t *tile) addTerm(k int, b []asmgen.Vec, a asmgen.Vec, p []asmgen.Vec) {
	for v := range vectors {
		t.I("VMOVUPS", t.values.At((k*vectors+v)*t.m.bytes), b[v])
	}
	for row := range t.m.rows {
		t.I("VBROADCASTSS", t.value(row, k), a)
		for v := range vectors {
			t.I("VMULPS", b[v], a, p[v])
		}
		for v := range vectors {
			t.I("VMULPS", t.scales[row][v], p[v], p[v])
		}
		for v := range vectors {
			t.I("VCVTTPS2DQ", p[v], p[v])
		}
		for v := range vectors {
			t.I("VPADDD", p[v], t.sums[row][v], t.sums[row][v])
		}
	}
}

// finish adds c, cuts the sums and stores them, or jumps to stop.
func (t *tile) finish(stop asmgen.Label) {
	t.scratch(3, func(s []asmgen.Vec) {
		t.each(func(row, v int) {
			sum, scale, c := t.sums[row][v], t.scales[row][v], s[0]
			if t.terms > half {
				t.I("VMOVUPS", t.vector(t.spill, row, v), c)
				t.addChecked(c, sum, s[1], s[2])
			}
			t.I("VMULPS", t.vector(t.c, row, v), scale, c)
			t.I("VCVTTPS2DQ", c, c)
			t.addChecked(c, sum, s[1], s[2])
			t.load(t.word("inverse", 2*127<<23), c)
			t.I("VPSUBD", scale, c, c)
			t.I("VCVTDQ2PS", sum, sum) // toward zero
			t.I("VMULPS", c, sum, sum)
			if t.mantissa < 23 {
				t.with("VANDPS", t.word(fmt.Sprintf("mantissa%d", t.mantissa), -1<<(23-t.mantissa)), sum, sum)
			}
		})
	})
	flag := t.GP()
	if t.m.bytes == 64 {
		t.I("VPMOVD2M", t.bad, asmgen.K(1))
		t.I("KORTESTW", asmgen.K(1), asmgen.K(1))
	} else {
		t.I("VMOVMSKPS", t.bad, flag)
		t.I("TESTL", flag, flag)
	}
	t.Free(flag)
	t.I("JNE", stop)
	t.each(func(row, v int) { t.I("VMOVUPS", t.sums[row][v], t.vector(t.c, row, v)) })
}

// addChecked adds x to sum. Where the sum does not fit into 32 bits, the lane is bad. With less
// fractional bits it always fits.
func (t *tile) addChecked(x, sum, before, y asmgen.Vec) {
	if t.fraction < 25 {
		t.I("VPADDD", x, sum, sum)
		return
	}
	t.I("VMOVAPS", sum, before)
	t.I("VPADDD", x, sum, sum)
	t.I("VXORPS", sum, before, before)
	t.I("VXORPS", sum, x, y)
	t.I("VANDPS", before, y, y)
	t.I("VORPS", y, t.bad, t.bad)
}
