package main

// Chains of blocks on NEON: those of chain.go, with four lanes per vector. Conversions to integers
// cut as they are. Those from integers would round, so that bits below FP32's are cleared before.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// neonRows is the number of rows of a tile, and neonBytes the size of a vector.
const neonRows, neonBytes = 4, 16

// neonTile is the state of a chain on NEON.
type neonTile struct {
	*asmgen.Func
	unit
	c, left, values, exponents, spill asmgen.Reg
	at, count                         asmgen.Reg // of a loop along k, as in tile

	scales, sums [neonRows][vectors]asmgen.Neon
	bad          asmgen.Neon
}

func neonChain(f *asmgen.File, u unit) {
	k := f.Func("chain"+u.name+"NEON", fmt.Sprintf("chain%sNEON adds blocks (> 0) of %d products to a tile of %d rows of c. It stops before a block that it cannot "+
		"compute and returns the number of blocks that are left.", u.name, u.terms, neonRows),
		asmgen.Arg("c", "*float32"), asmgen.Arg("left", "*float32"), asmgen.Arg("values", "*float32"), asmgen.Arg("exponents", "*uint32"),
		asmgen.Arg("spill", "*float32"), asmgen.Arg("blocks", "int"), asmgen.Result("rest", "int"))
	f.Constant("chunk", chunk)
	t := &neonTile{Func: k, unit: u, c: k.Load("c"), left: k.Load("left"), values: k.Load("values"), exponents: k.Load("exponents"), spill: k.Load("spill")}
	blocks := k.Load("blocks")
	t.at, t.count = k.GP(), k.GP()
	for row := range neonRows {
		t.scales[row], t.sums[row] = [vectors]asmgen.Neon(k.Vs(vectors)), [vectors]asmgen.Neon(k.Vs(vectors))
	}
	t.bad = k.V()
	stop := k.Label("stop")
	k.CountDown(blocks, func() {
		t.align()
		for first := 0; first < u.terms; first += t.fits() {
			t.add(first)
		}
		t.finish(stop)
		k.I("ADD", asmgen.Imm(4*u.terms), t.left)
	})
	k.Place(stop)
	k.I("MOVD", blocks, k.Slot("rest"))
	k.Return()
}

// fits returns the number of terms whose sum always fits into 32 bits.
func (t *neonTile) fits() int {
	if t.fraction < 25 {
		return t.terms
	}
	return half
}

// op prints an instruction on FP32 numbers or 32-bit integers: sources, and the destination last.
func (t *neonTile) op(mnemonic string, vs ...asmgen.Neon) {
	var ops []asmgen.Operand
	for _, v := range vs {
		ops = append(ops, v.S4())
	}
	t.I(mnemonic, ops...)
}

// bits is op for bitwise instructions.
func (t *neonTile) bits(mnemonic string, vs ...asmgen.Neon) {
	var ops []asmgen.Operand
	for _, v := range vs {
		ops = append(ops, v.B16())
	}
	t.I(mnemonic, ops...)
}

func (t *neonTile) shift(mnemonic string, by int64, from, to asmgen.Neon) {
	t.I(mnemonic, asmgen.Imm(by), from.S4(), to.S4())
}

// fill sets all lanes to a constant.
func (t *neonTile) fill(word int64, v asmgen.Neon) {
	r := t.GP()
	t.I("MOVD", asmgen.Imm(int64(uint32(word))), r)
	t.I("VDUP", r, v.S4())
	t.Free(r)
}

// scratch calls body with n registers and frees them.
func (t *neonTile) scratch(n int, body func(s []asmgen.Neon)) {
	s := t.Vs(n)
	body(s)
	for i := range s {
		t.Free(s[len(s)-1-i])
	}
}

func (t *neonTile) each(body func(row, v int)) {
	for row := range neonRows {
		for v := range vectors {
			body(row, v)
		}
	}
}

// vector returns the memory of vector v of a row of the tile at p.
func (t *neonTile) vector(p asmgen.Reg, row, v int) asmgen.Mem {
	return p.At((row*vectors + v) * neonBytes)
}

// along prints a loop over n elements from element first of the left panel on, step at a time. load
// loads step elements of each row, from element 0 or chunk of a leftRow on, which are lanes of a.
func (t *neonTile) along(first, n, from int, body func(a []asmgen.Neon)) {
	t.I("ADD", asmgen.Imm(int64(4*first)), t.left, t.at)
	t.I("MOVD", asmgen.Imm(int64(n/step)), t.count)
	t.scratch(neonRows, func(a []asmgen.Neon) {
		t.CountDown(t.count, func() {
			for row, v := range a {
				t.I("FMOVQ", t.at.At(4*(row*2*chunk+from)), v)
			}
			body(a)
			t.I("ADD", asmgen.Imm(4*step), t.at)
		})
	})
}

// align is tile.align.
func (t *neonTile) align() {
	for row := range neonRows {
		t.fill(-1<<31|1<<15, t.sums[row][0])
	}
	t.scratch(2, func(s []asmgen.Neon) {
		t.along(0, t.terms, chunk, func(a []asmgen.Neon) {
			for k := range step {
				t.I("FMOVQ", t.exponents.At(k*neonBytes), s[0])
				for row, v := range a {
					m := t.sums[row][0]
					t.I("VDUP", v.S(k), s[1].S4())
					t.I("VADD", s[0].H8(), s[1].H8(), s[1].H8())
					t.I("VSMAX", s[1].H8(), m.H8(), m.H8())
				}
			}
			t.I("ADD", asmgen.Imm(step*neonBytes), t.exponents)
		})
	})
	t.bits("VEOR", t.bad, t.bad, t.bad)
	t.scratch(9, func(s []asmgen.Neon) {
		constants := s[3:]
		for i, word := range []int64{-1, -zeroProduct, 1<<31 - 1 - most, -least, least, int64(2*127+t.fraction) << 23} {
			t.fill(word, constants[i])
		}
		t.each(func(row, v int) { t.alignVector(row, v, constants, s[0], s[1], s[2]) })
	})
}

func (t *neonTile) alignVector(row, v int, constants []asmgen.Neon, m, c, x asmgen.Neon) {
	largest, minusOne, minusZeroProduct, aboveMost, belowLeast := t.sums[row][0], constants[0], constants[1], constants[2], constants[3]
	if v == 0 {
		t.shift("VSHL", 16, largest, m)
		t.shift("VSSHR", 16, m, m)
	} else {
		t.shift("VSSHR", 16, largest, m)
	}
	t.I("FMOVQ", t.vector(t.c, row, v), c)
	t.op("VADD", c, c, c) // without its sign
	t.shift("VUSHR", 24, c, x)
	t.op("VADD", minusOne, c, c)
	t.op("VSMAX", x, m, x)
	t.op("VADD", minusZeroProduct, m, m)
	t.bits("VAND", m, c, c)
	t.op("VADD", aboveMost, x, m)
	t.bits("VORR", m, t.bad, t.bad)
	t.op("VADD", belowLeast, x, m)
	t.bits("VBIC", c, m, c)
	t.bits("VORR", c, t.bad, t.bad)
	t.op("VSMAX", constants[4], x, x)
	t.shift("VSHL", 23, x, x)
	t.op("VSUB", x, constants[5], t.scales[row][v])
}

// add is tile.add.
func (t *neonTile) add(first int) {
	t.each(func(row, v int) {
		s := t.sums[row][v]
		if first > 0 {
			t.I("FMOVQ", s, t.vector(t.spill, row, v))
		}
		t.bits("VEOR", s, s, s)
	})
	t.scratch(2*vectors, func(s []asmgen.Neon) {
		b, p := s[:vectors], s[vectors:]
		t.along(first, t.fits(), 0, func(a []asmgen.Neon) {
			for k := range step {
				for v := range vectors {
					t.I("FMOVQ", t.values.At((k*vectors+v)*neonBytes), b[v])
				}
				t.each(func(row, v int) {
					t.I("VFMUL", a[row].S(k), b[v].S4(), p[v].S4())
					t.op("VFMUL", t.scales[row][v], p[v], p[v])
					t.op("VFCVTZS", p[v], p[v])
					t.op("VADD", p[v], t.sums[row][v], t.sums[row][v])
				})
			}
			t.I("ADD", asmgen.Imm(step*vectors*neonBytes), t.values)
		})
	})
}

// finish is tile.finish.
func (t *neonTile) finish(stop asmgen.Label) {
	t.scratch(8, func(s []asmgen.Neon) {
		c, inverse, sign, minus8, zero := s[0], s[3], s[4], s[5], s[6]
		t.fill(2*127<<23, inverse)
		t.fill(-1<<31, sign)
		t.fill(-8, minus8)
		t.bits("VEOR", zero, zero, zero)
		if t.mantissa < 23 {
			t.fill(-1<<(23-t.mantissa), s[7])
		}
		t.each(func(row, v int) {
			sum, scale := t.sums[row][v], t.scales[row][v]
			if t.terms > t.fits() {
				t.I("FMOVQ", t.vector(t.spill, row, v), c)
				t.addChecked(c, sum, s[1], s[2])
			}
			t.I("FMOVQ", t.vector(t.c, row, v), c)
			t.op("VFMUL", scale, c, c)
			t.op("VFCVTZS", c, c)
			t.addChecked(c, sum, s[1], s[2])
			t.op("VSUB", scale, inverse, c)
			if t.fraction < 25 {
				t.op("VSCVTF", sum, sum) // exact
				t.op("VFMUL", c, sum, sum)
			} else {
				t.bits("VAND", sign, sum, s[1])
				t.op("VABS", sum, sum)
				t.op("VCLZ", sum, s[2])
				t.op("VADD", minus8, s[2], s[2])
				t.op("VSMIN", zero, s[2], s[2])
				t.op("VUSHL", s[2], sum, sum)
				t.op("VNEG", s[2], s[2])
				t.op("VUSHL", s[2], sum, sum)
				t.op("VUCVTF", sum, sum)
				t.op("VFMUL", c, sum, sum)
				t.bits("VORR", s[1], sum, sum)
			}
			if t.mantissa < 23 {
				t.bits("VAND", s[7], sum, sum)
			}
		})
		flag := t.GP()
		t.op("VUMAXP", t.bad, t.bad, c)
		t.op("VUMAXP", c, c, c)
		t.I("VMOV", c.S(0), flag)
		t.I("TBNZ", asmgen.Imm(31), flag, stop)
		t.Free(flag)
	})
	t.each(func(row, v int) { t.I("FMOVQ", t.sums[row][v], t.vector(t.c, row, v)) })
}

// addChecked is tile.addChecked.
func (t *neonTile) addChecked(x, sum, before, y asmgen.Neon) {
	if t.fraction < 25 {
		t.op("VADD", x, sum, sum)
		return
	}
	t.bits("VMOV", sum, before)
	t.op("VADD", x, sum, sum)
	t.bits("VEOR", sum, before, before)
	t.bits("VEOR", sum, x, y)
	t.bits("VAND", before, y, y)
	t.bits("VORR", y, t.bad, t.bad)
}
