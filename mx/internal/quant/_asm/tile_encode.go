package main

// The second step: encoding from the results of scan. One vector is one row of the tile.

import "spmoe/tensor/asmgen"

// An output is one direction of an encoder.
type output struct {
	cols   bool
	codes  asmgen.Reg
	stride asmgen.Mem
	code   asmgen.Vec // the vector in progress
	// Along columns they have a value per byte, along rows one for each of the 64 blocks.
	safe, bias, limit asmgen.Vec
	distance          asmgen.Vec  // of the vector in progress
	detour, shifted   asmgen.Mask // bytes that may be subnormal, and bytes that are
}

// An encoder is the common part of all encoders: the outputs and the loop over the rows.
type encoder struct {
	*asmgen.Func
	file          *tileFile
	outputs       []*output
	tile, work    asmgen.Reg // work advances by one row of its arrays
	scale, scales asmgen.Reg // of rows: source and destination of the next ones
	ahead, tmp    asmgen.Reg // ahead is the current row of a later tile
	one, largest  asmgen.Vec
	stream        bool // use non-temporal stores
}

// encode prints the encoders of rows, columns and both, each with normal and with non-temporal
// stores.
func encode(f *tileFile) {
	for _, way := range []struct {
		name       string
		rows, cols bool
	}{{"Rows", true, false}, {"Cols", false, true}, {"Both", true, true}} {
		for _, stream := range []bool{false, true} {
			name := "encode" + way.name + map[bool]string{true: "Stream"}[stream] + "AVX512"
			e := &encoder{Func: f.Func(name, name+" writes a scanned tile.", asmgen.Arg("t", "*Tile")), file: f, stream: stream}
			e.print(way.rows, way.cols)
		}
	}
}

func (e *encoder) print(rows, cols bool) {
	e.tile, e.tmp = e.Load("t"), e.GP()
	e.work, e.ahead = e.field("Tile_Work"), e.field("Tile_Ahead")
	if rows {
		e.output(false)
		e.scale, e.scales = e.GP(), e.field("Tile_RowScales")
		e.I("LEAQ", e.work.At(workRows+valuesScale), e.scale)
	}
	if cols {
		e.output(true)
		e.colScales()
	}
	e.one = e.file.broadcastByte(e.Func, 1)
	e.I("MOVQ", e.tile.Field("Tile_Rule"), e.tmp)
	e.largest = broadcastZ(e.Func, "VPBROADCASTB", e.tmp.Field("Rule_largest"))
	row := newMinifloatEncoder(e).encodeRow
	e.CountDown(e.field("Tile_Rows"), func() {
		e.I("PREFETCHT1", e.ahead.At(0))
		e.I("PREFETCHT1", e.ahead.At(64))
		e.I("ADDQ", e.tile.Field("Tile_Stride"), e.ahead)
		row()
		if rows {
			e.rowScales()
		}
	})
	e.Return()
}

func (e *encoder) field(f asmgen.Field) asmgen.Reg {
	r := e.GP()
	e.I("MOVQ", e.tile.Field(f), r)
	return r
}

func (e *encoder) output(cols bool) {
	o := &output{cols: cols, detour: asmgen.K(1), shifted: asmgen.K(3)}
	if cols {
		o.detour, o.shifted = asmgen.K(2), asmgen.K(4)
		o.codes, o.stride = e.field("Tile_ColCodes"), e.tile.Field("Tile_ColStride")
	} else {
		o.codes, o.stride = e.field("Tile_RowCodes"), e.tile.Field("Tile_RowStride")
	}
	e.outputs = append(e.outputs, o)
}

func (e *encoder) colScales() {
	to, v := e.field("Tile_ColScales"), loadZ(e.Func, e.work.At(workCols+valuesScale))
	e.I("VMOVDQU64", v, to.At(0))
	e.Free(to, v)
}

func (e *encoder) rowScales() {
	e.I("MOVWLZX", e.scale.At(0), e.tmp)
	e.I("MOVW", e.tmp, e.scales.At(0))
	e.I("ADDQ", asmgen.Imm(2), e.scale)
	e.I("ADDQ", e.tile.Field("Tile_RowScaleStep"), e.scales)
}

// store writes a row of codes. With a normal store it also prefetches the destination of the next
// tile. Rows are too far apart for the hardware prefetcher.
func (e *encoder) store(o *output) {
	if e.stream {
		e.I("VMOVNTDQ", o.code, o.codes.At(0))
	} else {
		e.I("PREFETCHT0", o.codes.At(64))
		e.I("VMOVDQU64", o.code, o.codes.At(0))
	}
	e.I("ADDQ", o.stride, o.codes)
	e.Free(o.code)
}
