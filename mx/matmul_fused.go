package mx

// Products of up to 8 rows with NVFP4 weights in square blocks: the kernel decodes codes in
// registers. It sums in the order of BF16 products with few rows, so it needs a tier on which these
// have that order.

import (
	"spmoe/mx/internal/nvfp4"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// fused is the state of such products of one thread.
type fused struct {
	on    bool
	group int           // whose rows are in panel; -1: none
	rows  int           // of the group
	panel []uint16      // [k/32, nvfp4.Rows, 32]
	sums  tensor.Tensor // [nvfp4.Rows, outputs of a tile] FP32
}

// newFused returns the state for a product.
func (s *streamed) newFused(ex *tensor.Exec) fused {
	k, f := s.w.Cols(), fused{group: -1}
	height, _ := s.w.BlockShape()
	if f.on = cpu.Best() == cpu.AVX512BF16 && height == nvfp4.Block && k%(2*nvfp4.Block) == 0; f.on {
		f.panel = words(ex.New(tensor.BF16, nvfp4.Rows*k))
		f.sums = ex.New(tensor.FP32, nvfp4.Rows, s.tile)
	}
	return f
}

// takes reports whether the kernel multiplies the rows of group g as a product in BF16 would. The
// rows may be part of a larger group, with another order of sums.
func (f *fused) takes(rows int, whole []int32, g int) bool {
	return f.on && rows <= nvfp4.Rows && (len(whole) == 0 || whole[g] <= nvfp4.Rows)
}

// load copies the rows of a group to the panel. Missing rows are zeros.
func (f *fused) load(x tensor.Matrix, g int) {
	if f.group == g {
		return
	}
	const vector = 2 * nvfp4.Block
	f.group, f.rows = g, x.Rows
	clear(f.panel)
	for r := range x.Rows {
		row := bf16Row(x, r)
		for k := 0; k < len(row); k += vector {
			copy(f.panel[k*nvfp4.Rows+r*vector:][:vector], row[k:])
		}
	}
}

// multiply computes y, the products of the group's rows with weights from row first on, times scale
// if there is one.
func (f *fused) multiply(d *tileDecoder, y tensor.Matrix, first int, scale []float32) {
	var sums [nvfp4.Rows * nvfp4.Columns]float32
	all := f.sums.F32()
	for j := 0; j < y.Cols; j += nvfp4.Columns {
		if j%nvfp4.Block == 0 {
			d.loadTables((first + j) / nvfp4.Block)
		}
		nvfp4.Multiply(&sums, f.panel, d.stored[(first+j)*d.bytes:], d.bytes, d.tables)
		for r := range f.rows {
			copy(all[r*y.Cols+j:][:nvfp4.Columns], sums[r*nvfp4.Columns:])
		}
	}
	for r := range f.rows {
		row := all[r*y.Cols:][:y.Cols]
		if scale != nil {
			tensor.Scale(row, scale[0], row)
		}
		storeRow(y, r, row)
	}
}
