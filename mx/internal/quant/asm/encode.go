package main

// The second step: codes from what scan left. A row of the tile is one vector.

import "spmoe/tensor/asmgen"

// A direction is one output of an encoder.
type direction struct {
	cols              bool
	safe, bias, limit asmgen.Vec // along columns those of each lane, along rows those of all 64 blocks
	codes, stride     asmgen.Reg
	code, distance    asmgen.Vec  // the vector under way
	detour, shifted   asmgen.Mask // its lanes that may be subnormal, and those that are
}

type encoder struct {
	*asmgen.Func
	file              *file
	integer           bool // the format is INT8
	directions        []*direction
	tile, work        asmgen.Reg // work moves on by one row of each of its arrays
	scale, scales     asmgen.Reg // of rows: where the next one is, where it goes
	tmp               asmgen.Reg
	one, largest, bit asmgen.Vec
	index             asmgen.Vec // for each lane, where the values of this row's block are
}

// encode prints the encoders of rows, columns and both, of minifloats or of INT8.
func encode(f *file, integer bool) {
	format := map[bool]string{true: "INT8"}[integer]
	for _, way := range []struct {
		name       string
		rows, cols bool
	}{{"Rows", true, false}, {"Cols", false, true}, {"Both", true, true}} {
		name := "encode" + format + way.name + "AVX512"
		e := &encoder{Func: f.Func(name, name+" writes a scanned tile.", asmgen.Arg("t", "*Tile")), file: f, integer: integer}
		e.print(way.rows, way.cols)
	}
}

func (e *encoder) print(rows, cols bool) {
	e.tile, e.tmp = e.Load("t"), e.GP()
	e.work = e.field(tileWork)
	if rows {
		e.direction(false)
		e.scale, e.scales = e.GP(), e.field(tileRowScales)
		e.I("LEAQ", e.work.At(workRows+valuesScale), e.scale)
		e.index = load(e.Func, e.file.rightBlock)
	}
	if cols {
		e.direction(true)
		e.colScales()
	}
	e.one, e.bit = e.file.all(e.Func, 1), e.file.all(e.Func, 0x80)
	e.I("MOVQ", e.tile.At(tileRule), e.tmp)
	e.largest = broadcast(e.Func, "VPBROADCASTB", e.tmp.At(ruleLargest))
	e.CountDown(e.field(tileRows), func() {
		if e.integer {
			e.integers()
		} else {
			e.minifloats()
		}
		if rows {
			e.rowScales()
			e.I("VPADDB", e.one, e.index, e.index)
		}
		e.I("ADDQ", asmgen.Imm(64), e.work)
	})
	e.Return()
}

func (e *encoder) field(off int) asmgen.Reg {
	r := e.GP()
	e.I("MOVQ", e.tile.At(off), r)
	return r
}

func (e *encoder) direction(cols bool) {
	values, codes, stride, detour, shifted := workRows, tileRowCodes, tileRowStride, asmgen.K(1), asmgen.K(3)
	if cols {
		values, codes, stride, detour, shifted = workCols, tileColCodes, tileColStride, asmgen.K(2), asmgen.K(4)
	}
	e.directions = append(e.directions, &direction{
		cols: cols, detour: detour, shifted: shifted, codes: e.field(codes), stride: e.field(stride),
		safe:  load(e.Func, e.work.At(values+valuesSafe)),
		bias:  load(e.Func, e.work.At(values+valuesBias)),
		limit: load(e.Func, e.work.At(values+valuesLimit)),
	})
}

func (e *encoder) colScales() {
	to, v := e.field(tileColScales), load(e.Func, e.work.At(workCols+valuesScale))
	e.I("VMOVDQU64", v, to.At(0))
	e.Free(to, v)
}

// minifloats encodes one row. Lanes with an exponent under the limit are settled apart; most rows have none.
func (e *encoder) minifloats() {
	const below = 1
	exponent := load(e.Func, e.work.At(workExponent))
	for _, d := range e.directions {
		bias, limit := e.lanes(d, d.bias), e.lanes(d, d.limit)
		d.code = load(e.Func, e.work.At(workCode))
		e.I("VPSUBB", bias, d.code, d.code)
		e.I("VPMINUB", e.largest, d.code, d.code)
		e.I("VPCMPUB", asmgen.Imm(below), limit, exponent, d.detour)
		if !d.cols {
			e.Free(bias, limit)
		}
	}
	e.Free(exponent)
	settled := e.Label("settled")
	e.I("KORTESTQ", e.directions[0].detour, e.directions[len(e.directions)-1].detour)
	e.I("JEQ", settled)
	e.shifted(5)
	e.Place(settled)
	for _, d := range e.directions {
		const or = 0xf8 // a | b&c
		e.I("VPTERNLOGD", asmgen.Imm(or), e.work.At(workSign), e.bit, d.code)
		e.store(d)
	}
}

// integers encodes one row as INT8, in which every code is a shifted significand.
func (e *encoder) integers() {
	const negative = asmgen.Mask(1)
	for _, d := range e.directions {
		d.code = e.Z()
	}
	e.shifted(1)
	zero, sign := e.Z(), load(e.Func, e.work.At(workSign))
	e.I("VPXORD", zero, zero, zero)
	e.I("VPMOVB2M", sign, negative)
	e.Free(sign)
	for _, d := range e.directions {
		e.I("VPMINUB", e.largest, d.code, d.code)
		e.I("VPSUBB", d.code, zero, negative, d.code)
		e.store(d)
	}
	e.Free(zero)
}

// store also fetches where the next tile goes: rows are too far apart for the hardware to foresee it.
func (e *encoder) store(d *direction) {
	e.I("PREFETCHT0", d.codes.At(64))
	e.I("VMOVDQU64", d.code, d.codes.At(0))
	e.I("ADDQ", d.stride, d.codes)
	e.Free(d.code)
}

// lanes gives block values lane by lane.
func (e *encoder) lanes(d *direction, values asmgen.Vec) asmgen.Vec {
	if d.cols {
		return values
	}
	v := e.Z()
	e.I("VPERMB", values, e.index, v)
	return v
}

func (e *encoder) rowScales() {
	for block := range 2 {
		e.I("MOVBLZX", e.scale.At(32*block), e.tmp)
		e.I("MOVB", e.tmp, e.scales.At(block))
	}
	e.I("INCQ", e.scale)
	e.I("ADDQ", e.tile.At(tileRowScaleStep), e.scales)
}

// shifted settles the lanes whose code is the significand 128+m shifted right and rounded: those with the exponent field
// 0, and all of INT8. For each distance k from first to 8 a table has the codes; beyond, the code is 0.
func (e *encoder) shifted(first int) {
	const hit = asmgen.Mask(5)
	mantissa, exponent := e.reread()
	for _, d := range e.directions {
		e.distances(d, exponent)
	}
	e.Free(exponent)
	for k := first; k <= 8; k++ {
		code, table := e.Z(), load(e.Func, e.file.significands.Plus(128*(k-1)))
		e.I("VMOVDQA64", mantissa, code)
		e.I("VPERMI2B", e.file.significands.Plus(128*(k-1)+64), table, code)
		for _, d := range e.directions {
			e.I("VPTESTNMB", d.distance, d.distance, d.shifted, hit)
			e.I("VMOVDQU8", code, hit, d.code)
			e.I("VPADDB", e.one, d.distance, d.distance)
		}
		e.Free(code, table)
	}
	e.Free(mantissa)
	for _, d := range e.directions {
		e.Free(d.distance)
	}
}

// distances finds the lanes to be shifted, clears their codes, and counts from which table on it is their turn.
func (e *encoder) distances(d *direction, exponent asmgen.Vec) {
	const below = 1
	d.distance = e.Z()
	t, safe := e.Z(), e.lanes(d, d.safe)
	e.I("MOVQ", e.tile.At(tileRule), e.tmp)
	if e.integer {
		e.I("KXNORQ", d.shifted, d.shifted, d.shifted)
	} else {
		e.I("VPBROADCASTB", e.tmp.At(ruleExact), t)
		e.I("VPSUBB", t, safe, t)
		e.I("VPCMPUB", asmgen.Imm(below), t, exponent, d.shifted)
	}
	e.I("VPXORD", t, t, t)
	e.I("VMOVDQU8", t, d.shifted, d.code)
	e.I("VPBROADCASTB", e.tmp.At(ruleAlign), t)
	e.I("VPSUBB", safe, exponent, d.distance)
	e.I("VPADDB", t, d.distance, d.distance)
	e.Free(t)
	if !d.cols {
		e.Free(safe)
	}
}

// reread takes mantissas (7 bits, the eighth is to be ignored) and exponents from the input: scan left them rounded.
func (e *encoder) reread() (mantissa, exponent asmgen.Vec) {
	e.I("MOVQ", e.work, e.tmp)
	e.I("SUBQ", e.tile.At(tileWork), e.tmp)
	e.I("SHRQ", asmgen.Imm(6), e.tmp)
	e.I("IMULQ", e.tile.At(tileStride), e.tmp)
	e.I("ADDQ", e.tile.At(tileX), e.tmp)
	mantissa, exponent = load(e.Func, e.tmp.At(0)), e.Z()
	x, t, index := load(e.Func, e.tmp.At(64)), e.Z(), load(e.Func, e.file.even)
	e.I("VPADDW", mantissa, mantissa, exponent)
	e.I("VPADDW", x, x, t)
	e.I("VPERMT2B", x, index, mantissa)
	e.I("VMOVDQU64", e.file.odd, index)
	e.I("VPERMT2B", t, index, exponent)
	e.Free(x, t, index)
	return mantissa, exponent
}
