package mx_test

// Formats without kernels, compared bit for bit with their references: Transformer Engine and
// torchao (NVFP4), DeepSeek's TileKernels (FP8 in blocks of 128), torchao and microxcaling (MXFP4,
// MXFP6).

import (
	"encoding/binary"
	"math"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// f64 returns the elements of a tensor of FP64.
func (f file) f64(name string) []float64 {
	f.t.Helper()
	bytes, err := f.Bytes(name)
	if err != nil {
		f.t.Fatal(err)
	}
	all := make([]float64, len(bytes)/8)
	for i := range all {
		all[i] = math.Float64frombits(binary.LittleEndian.Uint64(bytes[8*i:]))
	}
	return all
}

// TestGoldenGeneralQuantize quantizes x along rows and its transpose along columns.
func TestGoldenGeneralQuantize(t *testing.T) {
	nvfp4, fp8 := open(t, "nvfp4_quantize.safetensors"), open(t, "fp8_block_quantize.safetensors")
	zeros := tensor.New(tensor.BF16, 16, 32)
	for _, tt := range []struct {
		name   string
		format mx.Format
		x      tensor.Tensor
		codes  tensor.Tensor
		scales tensor.Tensor
	}{
		{"rows of 16", mx.NVFP4, nvfp4.tensor("x"), nvfp4.tensor("rows_codes"), nvfp4.tensor("rows_scales")},
		{"blocks of 16x16", mx.NVFP4Tile, nvfp4.tensor("x"), nvfp4.tensor("weight_codes"), nvfp4.tensor("weight_scales")},
		{"transformed", nvfp4RHT, transpose(nvfp4.tensor("x")), nvfp4.tensor("rht_codes"), nvfp4.tensor("rht_scales")},
		{"zeros", mx.NVFP4, zeros, nvfp4.tensor("zeros_codes"), nvfp4.tensor("zeros_scales")},
		{"rows of 128", mx.FP8Row, fp8.tensor("x"), fp8.tensor("x_free_codes"), fp8.tensor("x_free_scales")},
		{"columns of 128", mx.FP8Row, transpose(fp8.tensor("x")), fp8.tensor("xT_free_codes"), fp8.tensor("xT_free_scales")},
		{"blocks of 128x128", mx.FP8Tile, fp8.tensor("w"), fp8.tensor("w_free_codes"), fp8.tensor("w_free_scales")},
		{"rows of 128, powers of two", mx.FP8RowPow2, fp8.tensor("x"), fp8.tensor("x_pow2_codes"), fp8.tensor("x_pow2_scales")},
		{"columns of 128, powers of two", mx.FP8RowPow2, transpose(fp8.tensor("x")), fp8.tensor("xT_pow2_codes"), fp8.tensor("xT_pow2_scales")},
		{"blocks of 128x128, powers of two", mx.FP8TilePow2, fp8.tensor("w"), fp8.tensor("w_pow2_codes"), fp8.tensor("w_pow2_scales")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ex := tensor.NewExec()
			want := mx.Tensor{Format: tt.format, Codes: tt.codes, Scales: tt.scales}
			rows := mx.New(nil, tt.format, mx.AlongRows, tt.x.Dim(0), tt.x.Dim(1))
			cols := mx.New(nil, tt.format, mx.AlongCols, tt.x.Dim(1), tt.x.Dim(0))
			mx.Quantize(ex, rows, tt.x.Mat(), mx.RCEIL)
			mx.Quantize(ex, cols, transpose(tt.x).Mat(), mx.RCEIL)
			for r := range tt.x.Dim(0) {
				for c := range tt.x.Dim(1) {
					block := [2]int{r / tt.format.Block[0], c / tt.format.Block[1]}
					scale := reference(want, block)
					if got := rows.Scale(block[0], block[1]); got != scale || cols.Scale(block[1], block[0]) != scale {
						t.Fatalf("scale of (%d, %d): %g along rows, %g along columns, want %g", r, c, got, cols.Scale(block[1], block[0]), scale)
					}
					if code := want.Code(r, c); rows.Code(r, c) != code || cols.Code(c, r) != code {
						t.Fatalf("code of (%d, %d): %#x along rows, %#x along columns, want %#x", r, c, rows.Code(r, c), cols.Code(c, r), code)
					}
				}
			}
		})
	}
}

// reference returns the scale of a block. The files repeat the scales of 16x16 blocks for every
// row.
func reference(want mx.Tensor, block [2]int) float32 {
	if want.Format == mx.NVFP4Tile && want.Scales.Dim(0) == want.Codes.Dim(0) {
		block[0] *= want.Format.Block[0]
	}
	return want.Scale(block[0], block[1])
}

// TestGoldenSmallFormats: codes of MXFP4, packed, in all scale modes, and values of MXFP4, MXFP6
// and MXINT8.
func TestGoldenSmallFormats(t *testing.T) {
	f, ex := open(t, "small_formats.safetensors"), tensor.NewExec()
	x := f.tensor("x")
	packed := mx.E2M1
	packed.Name, packed.Packed = "packed e2m1", true
	for _, mode := range mx.ScaleModes() {
		got := mx.New(nil, packed, mx.AlongRows, x.Dim(0), x.Dim(1))
		mx.Quantize(ex, got, x.Mat(), mode)
		codes, scales := f.tensor("e2m1_"+mode.String()+"_codes").U8(), f.tensor("e2m1_"+mode.String()+"_scales").U8()
		for i, want := range codes {
			if got.Codes.U8()[i] != want {
				t.Fatalf("%v: byte %d is %#x, want %#x", mode, i, got.Codes.U8()[i], want)
			}
		}
		for i, want := range scales {
			if got.Scales.U8()[i] != want {
				t.Fatalf("%v: scale %d is %d, want %d", mode, i, got.Scales.U8()[i], want)
			}
		}
	}
	for name, format := range map[string]mx.Format{"fp4_e2m1": packed, "fp6_e2m3": mx.E2M3, "fp6_e3m2": mx.E3M2, "fp8_e4m3": mx.E4M3} {
		q, got := mx.New(nil, format, mx.AlongRows, x.Dim(0), x.Dim(1)), tensor.New(tensor.FP32, x.Dims()...)
		mx.Quantize(ex, q, x.Mat(), mx.FLOOR)
		mx.Dequantize(ex, got.Mat(), q)
		for i, want := range f.tensor("microxcaling_" + name).F32() {
			if got.F32()[i] != want {
				t.Fatalf("%s: element %d, %g, is dequantized %g, want %g", name, i, x.F32()[i], got.F32()[i], want)
			}
		}
	}
}

// TestGoldenGroupedNVFP4 compares products of four experts with exact products of the reference's
// operands. One expert has no rows.
func TestGoldenGroupedNVFP4(t *testing.T) {
	f, ex := open(t, "nvfp4_grouped_linear.safetensors"), tensor.NewExec()
	x, w, dy := f.tensor("x"), f.tensor("w"), f.tensor("dy")
	experts, n, k := w.Dim(0), w.Dim(1), w.Dim(2)
	ends, rows := make([]int32, experts), int32(0)
	for e, size := range f.tensor("sizes").I32() {
		rows += size
		ends[e] = rows
	}
	grouped := func(format mx.Format, d mx.Direction, m tensor.Matrix, ends []int32) mx.Tensor {
		q := mx.NewGrouped(nil, format, d, m.Cols, ends)
		mx.Quantize(ex, q, m, mx.RCEIL)
		return q
	}
	weights := grouped(mx.NVFP4Tile, mx.AlongRows, w.Mat(), mx.EqualGroups(experts, n))

	y := tensor.New(tensor.FP32, x.Dim(0), n)
	mx.SumFP32.GroupedMatMul(ex, y.Mat(), grouped(mx.NVFP4, mx.AlongRows, x.Mat(), ends), weights, ends)
	compareF64(t, "y", y.F32(), f.f64("y_f64"))

	dx := tensor.New(tensor.FP32, x.Dim(0), k)
	mx.SumFP32.GroupedDgrad(ex, dx.Mat(), grouped(mx.NVFP4, mx.AlongRows, dy.Mat(), ends), weights.WithBlocks(mx.AlongCols), ends)
	compareF64(t, "dx", dx.F32(), f.f64("dx_f64"))

	dw := tensor.New(tensor.FP32, experts, n, k)
	mx.SumFP32.GroupedWgrad(ex, dw, grouped(nvfp4RHT, mx.AlongCols, dy.Mat(), ends), grouped(nvfp4RHT, mx.AlongCols, x.Mat(), ends), false)
	compareF64(t, "dw", dw.F32(), f.f64("dw_f64"))
}

// compareF64 allows the relative L2 distance that FP32 sums explain. No code or scale may differ.
func compareF64(t *testing.T, name string, got []float32, want []float64) {
	t.Helper()
	if l2 := distance(got, want); !(l2 <= 1e-6) || len(got) != len(want) {
		t.Errorf("%s: %d elements, relative L2 %.2g to the exact products, want %d and 1e-6", name, len(got), l2, len(want))
	}
}

// distance returns the relative L2 distance.
func distance(got []float32, want []float64) float64 {
	diff, norm := 0.0, 0.0
	for i, w := range want {
		diff += (float64(got[i]) - w) * (float64(got[i]) - w)
		norm += w * w
	}
	return math.Sqrt(diff / norm)
}
