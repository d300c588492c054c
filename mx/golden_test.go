package mx_test

// Bit-for-bit comparison with torchao. testdata/*.safetensors has its outputs.

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/format"
)

// file is an open golden file whose tensors are known to exist.
type file struct {
	*safetensors.File
	t *testing.T
}

func open(t *testing.T, name string) file {
	t.Helper()
	f, err := safetensors.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return file{f, t}
}

// tensor returns a tensor of FP32, BF16, U8 or I32.
func (f file) tensor(name string) tensor.Tensor {
	f.t.Helper()
	info, _ := f.Info(name)
	bytes, err := f.Bytes(name)
	if err != nil {
		f.t.Fatal(err)
	}
	dtypes := map[string]tensor.DType{safetensors.F32: tensor.FP32, safetensors.BF16: tensor.BF16, safetensors.U8: tensor.UINT8, safetensors.I32: tensor.INT32}
	x := tensor.New(dtypes[info.DType], info.Shape...)
	if copy(x.Bytes(), bytes) != len(bytes) || len(bytes) != len(x.Bytes()) {
		f.t.Fatalf("%s: %d bytes for shape %v", name, len(bytes), info.Shape)
	}
	return x
}

func TestGoldenElementCasts(t *testing.T) {
	f := open(t, "mx_element_casts.safetensors")
	for _, format := range []mx.Format{mx.E4M3, mx.E5M2} {
		want := f.tensor("bf16_to_" + format.String() + "_saturating").U8()
		for bits := range 1 << 16 {
			x := tensor.BFloat16(bits).Float32()
			if got := format.Encode(x); got != want[bits] {
				t.Fatalf("%v: bfloat16 %#04x (%g) becomes %#x, want %#x", format, bits, x, got, want[bits])
			}
		}
		for code, want := range f.tensor(format.String() + "_decoded").F32() {
			got := format.Decode(uint8(code))
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Errorf("%v: code %#x is %g, want %g", format, code, got, want)
			}
		}
	}
	for b, want := range f.tensor("e8m0_decoded").F32() {
		got := mx.DecodeScale(uint8(b))
		if got != want && (got == got || want == want) {
			t.Errorf("scale %d is %g, want %g", b, got, want)
		}
	}
}

// transpose returns the transpose of an FP32 or BF16 matrix.
func transpose(x tensor.Tensor) tensor.Tensor {
	rows, cols := x.Dim(0), x.Dim(1)
	y := tensor.New(x.DType(), cols, rows)
	size := x.DType().Size()
	for r := range rows {
		for c := range cols {
			copy(y.Bytes()[(c*rows+r)*size:][:size], x.Bytes()[(r*cols+c)*size:][:size])
		}
	}
	return y
}

func TestGoldenQuantize(t *testing.T) {
	f := open(t, "mx_quantize.safetensors")
	mx.EachTier(t, func(t *testing.T) {
		for _, format := range []mx.Format{mx.E4M3, mx.E5M2} {
			for _, mode := range mx.ScaleModes() {
				name := format.String() + "_" + mode.String()
				checkQuantize(t, name, f.tensor("x"), format, mode, f.tensor(name+"_data").U8(), f.tensor(name+"_scale").U8())
			}
		}
		checkQuantize(t, "bf16_e4m3_rceil", f.tensor("xb"), mx.E4M3, mx.RCEIL, f.tensor("bf16_e4m3_rceil_data").U8(), f.tensor("bf16_e4m3_rceil_scale").U8())
	})
}

// checkQuantize quantizes x along rows and its transpose along columns, in one pass and separately.
// All results must have the golden bits.
func checkQuantize(t *testing.T, name string, x tensor.Tensor, f mx.Format, mode mx.ScaleMode, codes, scales []uint8) {
	t.Helper()
	ex := tensor.NewExec()
	for _, across := range []bool{false, true} {
		in, rows, cols := x, x.Dim(0), x.Dim(1)
		if across {
			in, rows, cols = transpose(x), cols, rows
		}
		for _, both := range []bool{false, true} {
			along := [...]mx.Tensor{mx.New(nil, f, mx.AlongRows, rows, cols), mx.New(nil, f, mx.AlongCols, rows, cols)}
			got := along[0]
			if across {
				got = along[1]
			}
			if both {
				mx.QuantizeBoth(ex, along[0], along[1], in.Mat(), mode)
			} else {
				mx.Quantize(ex, got, in.Mat(), mode)
			}
			at := func(m tensor.Tensor, r, c int) uint8 {
				if across {
					r, c = c, r
				}
				return m.U8()[r*m.Dim(1)+c]
			}
			for r := range x.Dim(0) {
				for c := range x.Dim(1) {
					i := r*x.Dim(1) + c
					if scale := at(got.Scales, r, c/format.MXBlock); scale != scales[i/format.MXBlock] {
						t.Fatalf("%s, across %v, both %v: scale of (%d, %d) is %d, want %d", name, across, both, r, c, scale, scales[i/format.MXBlock])
					}
					if code := at(got.Codes, r, c); code != codes[i] {
						t.Fatalf("%s, across %v, both %v: code of (%d, %d) is %#x, want %#x", name, across, both, r, c, code, codes[i])
					}
				}
			}
		}
	}
}

// TestGoldenInEveryTier runs the golden tests, products included, in a process of each other tier.
func TestGoldenInEveryTier(t *testing.T) {
	for _, tier := range cpu.All() {
		if tier == cpu.Best() {
			continue // this process
		}
		t.Run(tier.String(), func(t *testing.T) {
			cputest.Need(t, tier)
			cmd := exec.Command(os.Args[0], "-test.run", "^TestGolden(Linear|GroupedLinear|GroupedNVFP4)$")
			cmd.Env = append(os.Environ(), cpu.EnvVar+"="+tier.String())
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Errorf("%s", out)
			} else if errors.Is(err, syscall.ENOEXEC) {
				t.Skipf("the emulator that runs this test cannot run it again: set %s=%s", cpu.EnvVar, tier)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// quantized returns x in a new matrix with the given direction.
func quantized(ex *tensor.Exec, d mx.Direction, x tensor.Matrix) mx.Tensor {
	q := mx.New(ex, mx.E4M3, d, x.Rows, x.Cols)
	mx.Quantize(ex, q, x, mx.RCEIL)
	return q
}

func TestGoldenLinear(t *testing.T) {
	f, ex := open(t, "mx_linear.safetensors"), tensor.NewExec()
	x, w, dy := f.tensor("x"), f.tensor("w"), f.tensor("dy")

	y := tensor.New(tensor.BF16, dy.Dims()...)
	mx.SumFP32.MatMul(ex, y.Mat(), quantized(ex, mx.AlongRows, x.Mat()), quantized(ex, mx.AlongRows, w.Mat()))
	compareBF16(t, "y", y, f.tensor("y"))

	dx := tensor.New(tensor.BF16, x.Dims()...)
	mx.SumFP32.Dgrad(ex, dx.Mat(), quantized(ex, mx.AlongRows, dy.Mat()), quantized(ex, mx.AlongCols, w.Mat()))
	compareBF16(t, "dx", dx, f.tensor("dx"))

	dw := tensor.New(tensor.FP32, w.Dims()...)
	mx.SumFP32.Wgrad(ex, dw.Mat(), quantized(ex, mx.AlongCols, dy.Mat()), quantized(ex, mx.AlongCols, x.Mat()), 0, false)
	compareBF16(t, "dw", rounded(ex, dw), f.tensor("dw"))
}

func TestGoldenGroupedLinear(t *testing.T) {
	f, ex := open(t, "mx_grouped_linear.safetensors"), tensor.NewExec()
	a, w, do, ends := f.tensor("a"), f.tensor("w"), f.tensor("do"), f.tensor("group_end").I32()
	g, n, k := w.Dim(0), w.Dim(1), w.Dim(2)
	weights := w.Reshape(g*n, k).Mat()

	o := tensor.New(tensor.BF16, do.Dims()...)
	mx.SumFP32.GroupedMatMul(ex, o.Mat(), quantized(ex, mx.AlongRows, a.Mat()), quantized(ex, mx.AlongRows, weights), ends)
	compareBF16(t, "o", o, f.tensor("o"))

	wCols := mx.NewGrouped(ex, mx.E4M3, mx.AlongCols, k, mx.EqualGroups(g, n))
	mx.Quantize(ex, wCols, weights, mx.RCEIL)
	da := tensor.New(tensor.BF16, a.Dims()...)
	mx.SumFP32.GroupedDgrad(ex, da.Mat(), quantized(ex, mx.AlongRows, do.Mat()), wCols, ends)
	compareBF16(t, "da", da, f.tensor("da"))

	doCols, aCols := mx.NewGrouped(ex, mx.E4M3, mx.AlongCols, n, ends), mx.NewGrouped(ex, mx.E4M3, mx.AlongCols, k, ends)
	mx.Quantize(ex, doCols, do.Mat(), mx.RCEIL)
	mx.Quantize(ex, aCols, a.Mat(), mx.RCEIL)
	dw := tensor.New(tensor.FP32, w.Dims()...)
	mx.SumFP32.GroupedWgrad(ex, dw, doCols, aCols, false)
	compareBF16(t, "dw", rounded(ex, dw), f.tensor("dw"))
}

func rounded(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	y := tensor.New(tensor.BF16, x.Dims()...)
	tensor.Convert(ex, y.Mat(), x.Mat())
	return y
}

// compareBF16 requires 99.9 % of the elements to be within one unit in the last place, and a
// relative L2 distance of at most 2^-7. The order of the reference's sums is unknown.
func compareBF16(t *testing.T, name string, got, want tensor.Tensor) {
	t.Helper()
	far, diff, norm := 0, 0.0, 0.0
	for i, g := range got.BF16() {
		w := want.BF16()[i]
		if ordered(g)-ordered(w) > 1 || ordered(w)-ordered(g) > 1 {
			far++
		}
		d := float64(g.Float32()) - float64(w.Float32())
		diff += d * d
		norm += float64(w.Float32()) * float64(w.Float32())
	}
	l2 := math.Sqrt(diff / norm)
	t.Logf("%s: %d of %d elements differ by more than one unit in the last place, relative L2 %.2g", name, far, got.Len(), l2)
	if float64(far) > 0.001*float64(got.Len()) || !(l2 <= 1.0/128) {
		t.Errorf("%s: the limits are 0.1 %% of the elements and a relative L2 of 2^-7", name)
	}
}

// ordered maps bfloat16 to integers so that neighbors differ by one.
func ordered(b tensor.BFloat16) int {
	if b>>15 == 1 {
		return -int(b & 0x7fff)
	}
	return int(b)
}
