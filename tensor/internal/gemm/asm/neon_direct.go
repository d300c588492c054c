package main

// Products with few rows of a on NEON, as on AVX2 (direct_avx2.go). The registers hold eight of the
// sixteen chains of a sum, in two vectors. The rows of a group are read once for the first eight
// chains and again for the others.
//
// CPUs with BF16 multiply and add by BFMLALT and BFMLALB, which widen the second and the first
// elements of pairs and then do what FMLA does. Unlike BFMMLA, they round to nearest and keep
// subnormals: the bits are the same. Other CPUs widen b by an instruction of its own, once for all
// rows of a.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// directNEONColumns is the number of rows of b that the kernels for 1 to 6 rows of a take at
// once. It is bounded by the registers. With two vectors per sum, 20 to 24 hide the latency of a
// multiply-add.
var directNEONColumns = [...]int{1: 12, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}

// neonDirect is the frame of a kernel.
type neonDirect struct {
	fn            *asmgen.Func
	rows, columns int
	long          bool // BFMLALT and BFMLALB
	d, a          asmgen.Reg
	bs            []asmgen.Reg // rows of b
	steps, at     asmgen.Reg
	sums          [][][]asmgen.Neon // by row, column and vector
	high          asmgen.Neon       // mask of the second elements of pairs
}

func directNEON(f *asmgen.File) {
	for rows := 1; rows < len(directNEONColumns); rows++ {
		k := newNeonDirect(f, fmt.Sprintf("directBF16x%dNEON", rows), rows, "FP32")
		k.high = k.fn.V()
		highHalves(k.fn, k.high, k.at)
		k.generate()
	}
	pairsNEON(f)
}

func directLongNEON(f *asmgen.File) {
	for rows := 1; rows < len(directNEONColumns); rows++ {
		k := newNeonDirect(f, fmt.Sprintf("directLongx%dNEON", rows), rows, "BF16")
		k.long = true
		k.generate()
	}
}

func newNeonDirect(f *asmgen.File, name string, rows int, element string) *neonDirect {
	columns := directNEONColumns[rows]
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with groups of %d rows of b, BF16, in whole vectors; a holds %s.", name, rows, columns, element),
		asmgen.Arg("d", "*direct"))
	k := &neonDirect{fn: fn, rows: rows, columns: columns, d: fn.Load("d"), a: fn.GP(), steps: fn.GP(), at: fn.GP()}
	for range columns {
		k.bs = append(k.bs, fn.GP())
	}
	for i := range rows {
		k.sums = append(k.sums, nil)
		for range columns {
			k.sums[i] = append(k.sums[i], fn.Vs(2))
		}
	}
	return k
}

// generate multiplies group by group, each half of the chains after the other.
func (k *neonDirect) generate() {
	fn := k.fn
	next := fn.Label("next")
	fn.Place(next)
	for half := range 2 {
		k.begin()
		k.load(half)
		k.multiply(half)
		k.finish(half)
	}
	fn.I("MOVD", k.d.Field("direct_stride"), k.at)
	fn.I("MOVD", asmgen.Imm(int64(k.columns)), k.steps)
	fn.I("MUL", k.at, k.steps)
	k.move("direct_moved+moves_b", k.steps)
	k.move("direct_moved+moves_partial", asmgen.Imm(int64(64*k.rows*k.columns)))
	k.move("direct_moved+moves_sum", asmgen.Imm(int64(4*k.columns)))
	fn.I("MOVD", k.d.Field("direct_groups"), k.at)
	fn.I("SUBS", asmgen.Imm(1), k.at)
	fn.I("MOVD", k.at, k.d.Field("direct_groups"))
	fn.I("BNE", next)
	fn.Return()
}

// move adds to a field.
func (k *neonDirect) move(field asmgen.Field, by asmgen.Operand) {
	k.fn.I("MOVD", k.d.Field(field), k.at)
	k.fn.I("ADD", by, k.at)
	k.fn.I("MOVD", k.at, k.d.Field(field))
}

// sumOf loads the sum of two fields into r.
func (k *neonDirect) sumOf(x, y asmgen.Field, r asmgen.Reg) {
	k.fn.I("MOVD", k.d.Field(x), r)
	k.fn.I("MOVD", k.d.Field(y), k.at)
	k.fn.I("ADD", k.at, r)
}

// begin sets the pointers to the start of a and of the group's rows.
func (k *neonDirect) begin() {
	fn := k.fn
	k.sumOf("direct_b", "direct_moved+moves_b", k.bs[0])
	fn.I("MOVD", k.d.Field("direct_stride"), k.at)
	for j := 1; j < k.columns; j++ {
		fn.I("ADD", k.at, k.bs[j-1], k.bs[j])
	}
	fn.I("MOVD", k.d.Field("direct_a"), k.a)
}

// load loads the sums that an earlier call left, or starts at 0.
func (k *neonDirect) load(half int) {
	fn := k.fn
	zero, loaded := fn.Label("zero"), fn.Label("loaded")
	fn.I("MOVD", k.d.Field("direct_load"), k.at)
	fn.I("CBZ", k.at, zero)
	k.sumOf("direct_partial", "direct_moved+moves_partial", k.steps)
	k.eachSum(func(at int, s []asmgen.Neon) { fn.I("FLDPQ", k.steps.At(at+32*half), asmgen.Pair{s[0], s[1]}) })
	fn.I("JMP", loaded)
	fn.Place(zero)
	k.eachSum(func(_ int, s []asmgen.Neon) {
		for _, v := range s {
			fn.I("VMOVI", asmgen.Imm(0), v.B16())
		}
	})
	fn.Place(loaded)
}

// eachSum calls f with the vectors of each sum and their offset in the buffer of partial sums.
func (k *neonDirect) eachSum(f func(at int, s []asmgen.Neon)) {
	for i, row := range k.sums {
		for j, s := range row {
			f(64*(i*k.columns+j), s)
		}
	}
}

// multiply multiplies half of every 32 elements along k: of each pair the second element, then the
// first.
func (k *neonDirect) multiply(half int) {
	fn := k.fn
	vector, passes := 128, [][]string{{"VFMLA"}, {"VFMLA"}} // by part of the pairs
	if k.long {
		vector, passes = 64, [][]string{{"VBFMLALT", "VBFMLALB"}}
	}
	held, ones := fn.Vs(min(k.rows, k.columns)), fn.Vs(2)
	fn.I("MOVD", k.d.Field("direct_steps"), k.steps)
	fn.CountDown(k.steps, func() {
		for part, mnemonics := range passes {
			for q := range 2 {
				k.multiplyVectors(mnemonics, held, ones, q,
					func(i int, v asmgen.Neon) { fn.I("FMOVQ", k.a.At(vector*i+vector/2*half+32*part+16*q), v) },
					func(j int, v asmgen.Neon) {
						fn.I("FMOVQ", k.bs[j].At(32*half+16*q), v)
						k.widen(v, part)
					})
			}
		}
		fn.I("ADD", asmgen.Imm(int64(vector*k.rows)), k.a)
		for _, b := range k.bs {
			fn.I("ADD", asmgen.Imm(64), b)
		}
	})
	for _, v := range append(held, ones...) {
		fn.Free(v)
	}
}

// multiplyVectors multiplies a vector of each row by one of each column. ofA and ofB load them. The
// operand with fewer vectors stays in registers. The vectors of the other are loaded one after the
// other.
func (k *neonDirect) multiplyVectors(mnemonics []string, held, ones []asmgen.Neon, q int, ofA, ofB func(i int, v asmgen.Neon)) {
	hold, stream, sum := ofA, ofB, func(held, one int) asmgen.Neon { return k.sums[held][one][q] }
	if k.rows > k.columns {
		hold, stream, sum = ofB, ofA, func(held, one int) asmgen.Neon { return k.sums[one][held][q] }
	}
	for i, v := range held {
		hold(i, v)
	}
	for j := range max(k.rows, k.columns) {
		one := ones[j%2]
		stream(j, one)
		for _, mnemonic := range mnemonics {
			for i, v := range held {
				if k.long {
					k.fn.I(mnemonic, v.H8(), one.H8(), sum(i, j).S4())
				} else {
					k.fn.I(mnemonic, v.S4(), one.S4(), sum(i, j).S4())
				}
			}
		}
	}
}

// widen converts the second elements of v's pairs to FP32 (part 0), or the first.
func (k *neonDirect) widen(v asmgen.Neon, part int) {
	if !k.long {
		widenPairsNEON(k.fn, v, v, part, k.high)
	}
}

func widenPairsNEON(fn *asmgen.Func, from, to asmgen.Neon, part int, high asmgen.Neon) {
	if part == 0 {
		fn.I("VAND", high.B16(), from.B16(), to.B16())
	} else {
		fn.I("VSHL", asmgen.Imm(16), from.S4(), to.S4())
	}
}

// finish stores the vectors of sums if the sums are not complete. Otherwise it adds up the lanes of
// each. It stores the totals four at a time or adds those of the other half to them. Totals past
// the columns are not used.
func (k *neonDirect) finish(half int) {
	fn := k.fn
	raw, stored := fn.Label("raw"), fn.Label("stored")
	fn.I("MOVD", k.d.Field("direct_finish"), k.at)
	fn.I("CBZ", k.at, raw)
	k.sumOf("direct_sum", "direct_moved+moves_sum", k.steps)
	fn.I("MOVD", k.d.Field("direct_sumStride"), k.at)
	temp := fn.V()
	for _, row := range k.sums {
		for j := 0; j < len(row); j += 4 {
			v := k.total4(row[j:min(j+4, len(row))], temp)
			if half > 0 {
				fn.I("FMOVQ", k.steps.At(4*j), temp)
				fn.I("VFADD", temp.S4(), v.S4(), v.S4())
			}
			fn.I("FMOVQ", v, k.steps.At(4*j))
		}
		fn.I("ADD", k.at, k.steps)
	}
	fn.Free(temp)
	fn.I("JMP", stored)
	fn.Place(raw)
	k.sumOf("direct_partial", "direct_moved+moves_partial", k.steps)
	k.eachSum(func(at int, s []asmgen.Neon) { fn.I("FSTPQ", asmgen.Pair{s[0], s[1]}, k.steps.At(at+32*half)) })
	fn.Place(stored)
}

// total4 returns a vector whose lane i is the sum of the eight lanes of sums[i]. Every four lanes
// are summed as (0+2)+(1+3), and then the two results are added. It overwrites the sums.
func (k *neonDirect) total4(sums [][]asmgen.Neon, temp asmgen.Neon) asmgen.Neon {
	fn := k.fn
	for _, s := range sums {
		fn.I("VZIP1", s[1].D2(), s[0].D2(), temp.D2())
		fn.I("VZIP2", s[1].D2(), s[0].D2(), s[0].D2())
		fn.I("VFADD", temp.S4(), s[0].S4(), s[0].S4())
	}
	merge := func(x, y []asmgen.Neon) { fn.I("VFADDP", y[0].S4(), x[0].S4(), x[0].S4()) }
	last := sums[len(sums)-1]
	merge(sums[0], sums[min(1, len(sums)-1)])
	if len(sums) > 2 {
		merge(sums[2], last)
	}
	merge(sums[0], sums[min(2, len(sums)-1)])
	return sums[0][0]
}

// pairsNEON converts rows of BF16 to the form of a that these kernels take: eight vectors of FP32
// for each 32 elements.
func pairsNEON(f *asmgen.File) {
	fn := f.Func("pairsNEON", "pairsNEON converts steps (> 0) times 32 BF16 to FP32, step bytes apart. Each half has the second elements of its pairs and then the first.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("steps", "int"), asmgen.Arg("step", "int"))
	dst, src, steps, step, r := fn.Load("dst"), fn.Load("src"), fn.Load("steps"), fn.Load("step"), fn.GP()
	high, from, to := fn.V(), fn.Vs(2), fn.Vs(2)
	highHalves(fn, high, r)
	fn.CountDown(steps, func() {
		for half := range 2 {
			fn.I("FLDPQ", src.At(32*half), asmgen.Pair{from[0], from[1]})
			for part := range 2 {
				for q := range 2 {
					widenPairsNEON(fn, from[q], to[q], part, high)
				}
				fn.I("FSTPQ", asmgen.Pair{to[0], to[1]}, dst.At(64*half+32*part))
			}
		}
		fn.I("ADD", asmgen.Imm(64), src)
		fn.I("ADD", step, dst)
	})
	fn.Return()
}
