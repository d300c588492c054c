package mx

import (
	"bytes"
	"testing"

	"spmoe/tensor"
)

// TestGeneralTiersAgree: in formats that are not OCP MX, every tier makes the codes, scales and
// decoded copies of the plain Go functions. The shapes have odd blocks, panels and groups.
func TestGeneralTiersAgree(t *testing.T) {
	ex, transformed, shrunk := tensor.NewExec(), NVFP4, MXFP4
	transformed.Hadamard, shrunk.Hadamard, shrunk.Shrink = 16, 64, true
	shapes := []struct {
		rows, cols int
		ends       []int32
	}{{40, 90, nil}, {16, 2, nil}, {1, 46, nil}, {77, 320, []int32{0, 3, 35, 77}}, {33, 1334, []int32{16, 33}}, {2, 64, nil}, {131, 672, []int32{0, 130, 131}}}
	formats := []Format{NVFP4, NVFP4Tile, transformed, shrunk, wide4, sixteen, FP8Row, FP8RowPow2, FP8Tile, FP8TilePow2, FP8Tensor}
	for i, shape := range shapes {
		for name, fill := range map[string]filler{"normal": normal, "spread": spread, "drifting": drifting, "damaged": damaged} {
			if large := shape.rows*shape.cols > 20000; large && name != "damaged" {
				continue // they have more blocks, but the same numbers
			}
			x := filled(uint64(i), []tensor.DType{tensor.BF16, tensor.FP32}[i%2], shape.rows, shape.cols, fill)
			for _, f := range formats {
				for _, d := range []Direction{AlongRows, AlongCols} {
					for _, rounding := range Roundings() {
						c := Cast{Format: f, Mode: FLOOR, Rounding: rounding}
						var want [4][]byte
						eachTier(func(tier string) {
							got := quantizedBytes(ex, c, d, x, shape.ends)
							if tier == "generic" {
								want = got
							}
							for part, b := range got {
								if !bytes.Equal(b, want[part]) {
									t.Fatalf("%s: %v %v %v, %s, %v: %s differ from plain Go", tier, f, d, rounding, name, shape,
										[]string{"codes", "scales", "tensor scales", "decoded copies"}[part])
								}
							}
						})
					}
				}
			}
		}
	}
}

// quantizedBytes returns the codes, scales and tensor scales of x, and the decoded copy that
// products multiply.
func quantizedBytes(ex *tensor.Exec, c Cast, d Direction, x tensor.Tensor, ends []int32) [4][]byte {
	ex.Reset()
	q := New(nil, c.Format, d, x.Dim(0), x.Dim(1))
	if ends != nil {
		q = NewGrouped(nil, c.Format, d, x.Dim(1), ends)
	}
	c.Quantize(ex, q, x.Mat(), Draws{Seed: 1, First: 1<<32 - 3})
	dtype, amax := tensor.FP32, []byte(nil)
	if c.Format.fitsBF16() {
		dtype = tensor.BF16
	}
	if q.Amax.Valid() {
		amax = q.Amax.Bytes()
	}
	decoded := tensor.New(dtype, x.Dims()...)
	dequantizeGeneral(ex, decoded.Mat(), q, blockScales)
	return [4][]byte{q.Codes.Bytes(), q.Scales.Bytes(), amax, decoded.Bytes()}
}
