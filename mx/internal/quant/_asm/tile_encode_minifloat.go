package main

// Encoding as a minifloat: the exponent field of the code from scan, less the scale. Subnormal
// codes are looked up in tables.

import "spmoe/tensor/asmgen"

type minifloatEncoder struct {
	*encoder
	signs   asmgen.Reg // of the current row
	signBit asmgen.Vec
	index   asmgen.Vec // for each byte, the index of its block's value in the current row
}

func newMinifloatEncoder(e *encoder) *minifloatEncoder {
	m := &minifloatEncoder{encoder: e, signs: e.GP(), signBit: e.file.broadcastByte(e.Func, 0x80)}
	e.I("LEAQ", e.work.At(workSign), m.signs)
	for _, o := range e.outputs {
		values := workRows
		if o.cols {
			values = workCols
		} else {
			m.index = loadZ(e.Func, e.file.rightBlock)
		}
		o.safe, o.bias, o.limit = loadZ(e.Func, e.work.At(values+valuesSafe)), loadZ(e.Func, e.work.At(values+valuesBias)), loadZ(e.Func, e.work.At(values+valuesLimit))
	}
	return m
}

// encodeRow encodes one row. Bytes with an exponent below the limit are handled separately. Most
// rows have none.
func (m *minifloatEncoder) encodeRow() {
	const below, negative = 1, asmgen.Mask(6)
	exponent := loadZ(m.Func, m.work.At(workExponent))
	for _, o := range m.outputs {
		bias, limit := m.expandLanes(o, o.bias), m.expandLanes(o, o.limit)
		o.code = loadZ(m.Func, m.work.At(workCode))
		m.I("VPSUBB", bias, o.code, o.code)
		m.I("VPMINUB", m.largest, o.code, o.code)
		m.I("VPCMPUB", asmgen.Imm(below), limit, exponent, o.detour)
		if !o.cols {
			m.Free(bias, limit)
		}
	}
	m.Free(exponent)
	settled := m.Label("settled")
	m.I("KORTESTQ", m.outputs[0].detour, m.outputs[len(m.outputs)-1].detour)
	m.I("JEQ", settled)
	m.encodeSubnormals()
	m.Place(settled)
	m.I("KMOVQ", m.signs.At(0), negative)
	m.I("ADDQ", asmgen.Imm(8), m.signs)
	for _, o := range m.outputs {
		m.I("VPADDB", m.signBit, o.code, negative, o.code)
		m.store(o)
		if !o.cols {
			m.I("VPADDB", m.one, m.index, m.index)
		}
	}
	m.I("ADDQ", asmgen.Imm(64), m.work)
}

// expandLanes expands block values to one per byte.
func (m *minifloatEncoder) expandLanes(o *output, values asmgen.Vec) asmgen.Vec {
	if o.cols {
		return values
	}
	v := m.Z()
	m.I("VPERMB", values, m.index, v)
	return v
}

// encodeSubnormals computes the codes with exponent field 0. Such a code is the significand 128+m,
// shifted right and rounded. There is one table of codes for each shift.
func (m *minifloatEncoder) encodeSubnormals() {
	const hit = asmgen.Mask(5)
	mantissa, exponent := m.loadInput()
	for _, o := range m.outputs {
		m.computeDistances(o, exponent)
	}
	m.Free(exponent)
	for k := range lastShift - firstShift + 1 {
		code, table := m.Z(), loadZ(m.Func, m.file.significands.Plus(128*k))
		m.I("VMOVDQA64", mantissa, code)
		m.I("VPERMI2B", m.file.significands.Plus(128*k+64), table, code)
		for _, o := range m.outputs {
			m.I("VPTESTNMB", o.distance, o.distance, o.shifted, hit)
			m.I("VMOVDQU8", code, hit, o.code)
			m.I("VPADDB", m.one, o.distance, o.distance)
		}
		m.Free(code, table)
	}
	m.Free(mantissa)
	for _, o := range m.outputs {
		m.Free(o.distance)
	}
}

// computeDistances finds the bytes to shift, clears their codes, and computes the distance of each
// to the first table.
func (m *minifloatEncoder) computeDistances(o *output, exponent asmgen.Vec) {
	const below = 1
	o.distance = m.Z()
	t, safe := m.Z(), m.expandLanes(o, o.safe)
	m.I("MOVQ", m.tile.Field("Tile_Rule"), m.tmp)
	m.I("VPBROADCASTB", m.tmp.Field("Rule_exact"), t)
	m.I("VPSUBB", t, safe, t)
	m.I("VPCMPUB", asmgen.Imm(below), t, exponent, o.shifted)
	m.I("VPXORD", t, t, t)
	m.I("VMOVDQU8", t, o.shifted, o.code)
	m.I("VPBROADCASTB", m.tmp.Field("Rule_align"), t)
	m.I("VPSUBB", safe, exponent, o.distance)
	m.I("VPADDB", t, o.distance, o.distance)
	m.Free(t)
	if !o.cols {
		m.Free(safe)
	}
}

// loadInput loads mantissas (7 bits; ignore the eighth) and exponents from the input, because scan
// stored them rounded.
func (m *minifloatEncoder) loadInput() (mantissa, exponent asmgen.Vec) {
	m.I("MOVQ", m.work, m.tmp)
	m.I("SUBQ", m.tile.Field("Tile_Work"), m.tmp)
	m.I("SHRQ", asmgen.Imm(6), m.tmp)
	m.I("IMULQ", m.tile.Field("Tile_Stride"), m.tmp)
	m.I("ADDQ", m.tile.Field("Tile_X"), m.tmp)
	mantissa, exponent = loadZ(m.Func, m.tmp.At(0)), m.Z()
	x, t, index := loadZ(m.Func, m.tmp.At(64)), m.Z(), loadZ(m.Func, m.file.even)
	m.I("VPADDW", mantissa, mantissa, exponent)
	m.I("VPADDW", x, x, t)
	m.I("VPERMT2B", x, index, mantissa)
	m.I("VMOVDQU64", m.file.odd, index)
	m.I("VPERMT2B", t, index, exponent)
	m.Free(x, t, index)
	return mantissa, exponent
}
