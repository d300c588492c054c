package golden

import (
	"fmt"
	"math"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
	"spmoe/tensor"
)

// CheckMX compares package mx with a file of reference outputs, and returns one Line per tensor.
// The names of the file's tensors say what it holds:
//
//	x, e4m3_rceil_data, e4m3_rceil_scale                  quantization of x (of xb: bf16_e4m3_...)
//	x, w, dy, y, dx, dw, dw_wgrad_hp                      a linear layer, E4M3 and RCEIL
//	a, w, do, group_end, o, da, dw                        the same with groups of rows
//	x, rows_codes, rows_scales, weight_..., rht_...       NVFP4: rows, 16x16 blocks, transform
//	x, w, dy, y_f64, dx_f64, dw_f64, perhaps sizes        NVFP4: a linear layer, or groups of rows
//	x_free_codes, x_free_scales, xT_, w_, y_free_f64, ... FP8 in blocks of 128; pow2: other scales
//	x, e2m1_rceil_codes, e2m1_rceil_scales                MXFP4
//	P.a, P.b, P.out, P.out_chained, P.out_promoted        products a·bᵀ of a GPU's tensor cores
//	P.a, P.b, P.scale_a, P.scale_b, P.out                 the same for FP8 in blocks of 128
//	P.a, P.b, P.c, P.d                                    single blocks of them: d = a·b + c
func CheckMX(path string) ([]Line, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c := &mxCheck{file: file, ex: tensor.NewExec()}
	switch {
	case c.tensorCores():
	case c.recipes():
	case c.has("group_end"):
		c.groupedLinear()
	case c.has("dy"):
		c.linear()
	case c.has("x") || c.has("xb"):
		c.quantization()
	}
	if c.err == nil && len(c.lines) == 0 {
		c.err = fmt.Errorf("it holds no reference: expected are quantized tensors or a linear layer")
	}
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", path, c.err)
	}
	return c.lines, nil
}

// mxCheck is a comparison under way. The first error ends it.
type mxCheck struct {
	file  *safetensors.File
	ex    *tensor.Exec
	lines []Line
	err   error
}

func (c *mxCheck) has(name string) bool {
	_, ok := c.file.Info(name)
	return ok
}

// tensor reads a tensor and checks its type and extents. A negative extent stands for any.
func (c *mxCheck) tensor(name string, dtype tensor.DType, dims ...int) tensor.Tensor {
	if c.err != nil {
		return tensor.New(dtype, make([]int, len(dims))...)
	}
	info, _ := c.file.Info(name)
	names := map[tensor.DType]string{tensor.FP32: safetensors.F32, tensor.BF16: safetensors.BF16, tensor.UINT8: safetensors.U8, tensor.INT32: safetensors.I32}
	fits := info.DType == names[dtype] && len(info.Shape) == len(dims) && info.Size > 0 && info.Size <= mostTensor
	for i := range dims {
		fits = fits && (dims[i] < 0 || info.Shape[i] == dims[i])
	}
	if !fits {
		c.err = fmt.Errorf("%s is %s %v: %s %v is expected (-1: any), not empty and of at most %d bytes", name, info.DType, info.Shape, names[dtype], dims, mostTensor)
		return tensor.New(dtype, make([]int, len(dims))...)
	}
	data, err := c.file.Bytes(name)
	if err != nil {
		c.err = err
		return tensor.New(dtype, make([]int, len(dims))...)
	}
	t := tensor.New(dtype, info.Shape...)
	copy(t.Bytes(), data)
	return t
}

// mostTensor is the size of the largest reference tensor in bytes.
const mostTensor = 64 << 20

// bits adds a line that counts differing elements. All NaNs count as equal.
func (c *mxCheck) bits(name string, n int, same func(i int) bool, show func(i int) string) {
	l := Line{Name: name, Rule: "elements that differ"}
	for i := range n {
		if !same(i) {
			if l.Error == 0 {
				l.Note = fmt.Sprintf("first at %d: %s", i, show(i))
			}
			l.Error++
		}
	}
	c.lines = append(c.lines, l)
}

func (c *mxCheck) codes(name string, got, want []uint8) {
	c.bits(name, len(want), func(i int) bool { return got[i] == want[i] },
		func(i int) string { return fmt.Sprintf("%#02x, reference %#02x", got[i], want[i]) })
}

func (c *mxCheck) floats(name string, got func(i int) float32, want []float32) {
	c.bits(name, len(want), func(i int) bool {
		g, w := got(i), want[i]
		return math.Float32bits(g) == math.Float32bits(w) || g != g && w != w
	}, func(i int) string { return fmt.Sprintf("%g, reference %g", got(i), want[i]) })
}

func (c *mxCheck) quantization() {
	for _, source := range []struct {
		x, prefix string
		dtype     tensor.DType
	}{{"x", "", tensor.FP32}, {"xb", "bf16_", tensor.BF16}} {
		if !c.has(source.x) {
			continue
		}
		x := c.tensor(source.x, source.dtype, -1, -1)
		for _, f := range mx.MXFormats() {
			for _, mode := range mx.ScaleModes() {
				name := fmt.Sprintf("%s%v_%v", source.prefix, f, mode)
				if !c.has(name + "_data") {
					continue
				}
				q := mx.New(c.ex, f, mx.AlongRows, x.Dim(0), x.Dim(1))
				mx.Quantize(c.ex, q, x.Mat(), mode)
				c.codes(name+"_scale", q.Scales.U8(), c.tensor(name+"_scale", tensor.UINT8, q.Scales.Dims()...).U8())
				c.codes(name+"_data", q.Codes.U8(), c.tensor(name+"_data", tensor.UINT8, q.Codes.Dims()...).U8())
			}
		}
	}
}

// rows quantizes a matrix along its rows, as the references do: E4M3, RCEIL. cols does so along its
// columns.
func (c *mxCheck) rows(x tensor.Matrix) mx.Tensor {
	q := mx.New(c.ex, mx.E4M3, mx.AlongRows, x.Rows, x.Cols)
	mx.Quantize(c.ex, q, x, mx.RCEIL)
	return q
}

func (c *mxCheck) cols(x tensor.Matrix, ends []int32) mx.Tensor {
	q := mx.NewGrouped(c.ex, mx.E4M3, mx.AlongCols, x.Cols, ends)
	mx.Quantize(c.ex, q, x, mx.RCEIL)
	return q
}

func (c *mxCheck) linear() {
	x, w := c.tensor("x", tensor.BF16, -1, -1), c.tensor("w", tensor.BF16, -1, -1)
	m, k, n := x.Dim(0), x.Dim(1), w.Dim(0)
	dy := c.tensor("dy", tensor.BF16, m, n)
	if c.err != nil || w.Dim(1) != k {
		c.err = fmt.Errorf("w is %v for x %v: [N, K] and [M, K] are expected (%v)", w.Dims(), x.Dims(), c.err)
		return
	}
	y, dx, dw := c.ex.New(tensor.BF16, m, n), c.ex.New(tensor.BF16, m, k), tensor.New(tensor.FP32, n, k)
	mx.SumFP32.MatMul(c.ex, y.Mat(), c.rows(x.Mat()), c.rows(w.Mat()))
	mx.SumFP32.Dgrad(c.ex, dx.Mat(), c.rows(dy.Mat()), c.cols(w.Mat(), mx.EqualGroups(1, n)).Group(0))
	tokens := mx.EqualGroups(1, m)
	mx.SumFP32.Wgrad(c.ex, dw.Mat(), c.cols(dy.Mat(), tokens).Group(0), c.cols(x.Mat(), tokens).Group(0), 0, false)
	c.product("y", y)
	c.product("dx", dx)
	c.product("dw", dw)
	if c.has("dw_wgrad_hp") {
		dw.Zero()
		tensor.MatMulAdd(c.ex, dw.Mat(), dy.Mat().T(), x.Mat())
		c.product("dw_wgrad_hp", dw)
	}
}

func (c *mxCheck) groupedLinear() {
	a, w := c.tensor("a", tensor.BF16, -1, -1), c.tensor("w", tensor.BF16, -1, -1, -1)
	m, k, g, n := a.Dim(0), a.Dim(1), w.Dim(0), w.Dim(1)
	do, ends := c.tensor("do", tensor.BF16, m, n), c.tensor("group_end", tensor.INT32, g).I32()
	if c.err != nil || w.Dim(2) != k {
		c.err = fmt.Errorf("w is %v for a %v: [G, N, K] and [M, K] are expected (%v)", w.Dims(), a.Dims(), c.err)
		return
	}
	for i, end := range ends {
		if before := ends[max(i-1, 0)]; end < 0 || end < before || int(end) > m || i == g-1 && int(end) != m {
			c.err = fmt.Errorf("group_end is %v: end offsets that grow up to %d are expected", ends, m)
			return
		}
	}
	o, da, dw := c.ex.New(tensor.BF16, m, n), c.ex.New(tensor.BF16, m, k), tensor.New(tensor.FP32, g, n, k)
	mx.SumFP32.GroupedMatMul(c.ex, o.Mat(), c.rows(a.Mat()), c.rows(w.Mat()), ends)
	mx.SumFP32.GroupedDgrad(c.ex, da.Mat(), c.rows(do.Mat()), c.cols(w.Mat(), mx.EqualGroups(g, n)), ends)
	mx.SumFP32.GroupedWgrad(c.ex, dw, c.cols(do.Mat(), ends), c.cols(a.Mat(), ends), false)
	c.product("o", o)
	c.product("da", da)
	c.product("dw", dw)
}

// The bounds of BF16 outputs. Another order of FP32 sums may, rarely, change the last bit.
const (
	productBound = 1.0 / 128 // relative L2
	ulpBound     = 1e-3      // share of elements that differ by more than one BF16 ulp
)

// product compares a result, rounded to BF16, with the reference of that name.
func (c *mxCheck) product(name string, got tensor.Tensor) {
	want := c.tensor(name, tensor.BF16, got.Dims()...)
	if c.err != nil {
		return
	}
	rounded := c.ex.New(tensor.BF16, got.Dims()...)
	tensor.Convert(c.ex, rounded.Mat(), got.Mat())
	g, w := rounded.BF16(), want.BF16()
	wide := func(b []tensor.BFloat16) []float32 {
		out := make([]float32, len(b))
		for i := range b {
			out[i] = b[i].Float32()
		}
		return out
	}
	l2 := relativeL2(name, wide(g), wide(w))
	l2.Bound = productBound
	far := Line{Name: name + ", ulps", Rule: "share of elements over 1 BF16 ulp away", Bound: ulpBound}
	for i := range w {
		if d := ordered(g[i]) - ordered(w[i]); d > 1 || d < -1 {
			far.Error += 1 / float64(len(w))
		}
	}
	c.lines = append(c.lines, l2, far)
}

// ordered maps a BF16 number to an integer such that neighbours are 1 apart.
func ordered(b tensor.BFloat16) int {
	if b&0x8000 != 0 {
		return -int(b & 0x7fff)
	}
	return int(b)
}

// IsMX reports whether a path names a file for CheckMX rather than a folder.
func IsMX(path string) bool { return strings.HasSuffix(path, ".safetensors") }
