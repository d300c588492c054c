package golden

// References for the formats that models are trained in: NVFP4, FP8 in blocks of 128, MXFP4.

import (
	"encoding/binary"
	"fmt"
	"math"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
	"spmoe/tensor"
)

// recipes compares a file of such references. It returns false if the file is not one.
func (c *mxCheck) recipes() bool {
	switch {
	case c.has("sizes"):
		c.nvfp4Products(c.sizes())
	case c.has("y_f64"):
		c.nvfp4Products(nil)
	case c.has("x_free_codes") || c.has("x_pow2_codes"):
		c.fp8()
	case c.has("rows_codes") || c.has("weight_codes") || c.has("rht_codes"):
		c.nvfp4()
	case c.mxfp4():
	default:
		return false
	}
	return true
}

// quantized quantizes x, whose rows may be in groups.
func (c *mxCheck) quantized(f mx.Format, d mx.Direction, x tensor.Matrix, mode mx.ScaleMode, ends []int32) mx.Tensor {
	if f.Packed && x.Cols%2 != 0 {
		c.err = fmt.Errorf("a matrix has %d columns: %v packs two codes in a byte, so an even number is expected", x.Cols, f)
		f.Packed = false
	}
	q := mx.New(c.ex, f, d, x.Rows, x.Cols)
	if ends != nil {
		q = mx.NewGrouped(c.ex, f, d, x.Cols, ends)
	}
	mx.Quantize(c.ex, q, x, mode)
	return q
}

// coded compares codes and scales with PREFIX_codes and PREFIX_scales. Those of a matrix with
// blocks along columns are of its transpose. Scales of square blocks may be repeated for every row.
func (c *mxCheck) coded(prefix string, q mx.Tensor) {
	f, rows, cols := q.Format, q.Rows(), q.Cols()
	code, scale := q.Code, q.Scale
	if q.Blocks == mx.AlongCols {
		rows, cols = cols, rows
		code, scale = func(i, j int) uint8 { return q.Code(j, i) }, func(i, j int) float32 { return q.Scale(j, i) }
	}
	if c.err != nil {
		return
	}
	perByte, dtype := 1, tensor.FP32
	if f.Packed {
		perByte = 2
	}
	if f.Scale == mx.ScaleE4M3 || f.Scale == mx.ScaleE8M0 {
		dtype = tensor.UINT8
	}
	if cols%perByte != 0 {
		c.err = fmt.Errorf("%s_codes: rows of %d codes do not fill bytes of %d: give an even number of columns", prefix, cols, perByte)
		return
	}
	blocks, perRow := (rows+f.Block[0]-1)/f.Block[0], f.BlocksIn(cols)
	repeat := 1
	if info, _ := c.file.Info(prefix + "_scales"); len(info.Shape) == 2 && info.Shape[0] == rows {
		blocks, repeat = rows, f.Block[0]
	}
	want := mx.Tensor{Format: f, Codes: c.tensor(prefix+"_codes", tensor.UINT8, rows, cols/perByte), Scales: c.tensor(prefix+"_scales", dtype, blocks, perRow)}
	if c.err != nil {
		return
	}
	c.floats(prefix+"_scales", func(i int) float32 { return scale(i/perRow/repeat, i%perRow) }, scaleValues(want))
	c.bits(prefix+"_codes", rows*cols, func(i int) bool { return code(i/cols, i%cols) == want.Code(i/cols, i%cols) },
		func(i int) string {
			return fmt.Sprintf("%#02x, reference %#02x", code(i/cols, i%cols), want.Code(i/cols, i%cols))
		})
}

// scaleValues returns the scales of a matrix, row by row.
func scaleValues(t mx.Tensor) []float32 {
	n := t.Scales.Dim(1)
	all := make([]float32, t.Scales.Len())
	for i := range all {
		all[i] = t.Scale(i/n, i%n)
	}
	return all
}

// nvfp4Transformed is NVFP4 for the operands of wgrad.
var nvfp4Transformed = func() mx.Format {
	f := mx.NVFP4
	f.Hadamard = 16
	return f
}()

// nvfp4 compares quantized matrices: x in rows of 16 and squares of 16, and its transform.
func (c *mxCheck) nvfp4() {
	x := c.tensor("x", tensor.BF16, -1, -1)
	if c.err != nil {
		return
	}
	if c.has("rows_codes") {
		c.coded("rows", c.quantized(mx.NVFP4, mx.AlongRows, x.Mat(), mx.RCEIL, nil))
	}
	if c.has("weight_codes") {
		c.coded("weight", c.quantized(mx.NVFP4Tile, mx.AlongRows, x.Mat(), mx.RCEIL, nil))
	}
	if c.has("rht_codes") {
		x, _ = padded(x, []int32{int32(x.Dim(0))}, 16)
		c.coded("rht", c.quantized(nvfp4Transformed, mx.AlongCols, x.Mat(), mx.RCEIL, nil))
	}
}

// fp8 compares matrices and products in FP8 with both kinds of scales.
func (c *mxCheck) fp8() {
	for _, kind := range []struct {
		name      string
		row, tile mx.Format
	}{{"free", mx.FP8Row, mx.FP8Tile}, {"pow2", mx.FP8RowPow2, mx.FP8TilePow2}} {
		for _, operand := range []struct {
			name, x string
			format  mx.Format
			along   mx.Direction
		}{{"x", "x", kind.row, mx.AlongRows}, {"xT", "x", kind.row, mx.AlongCols}, {"w", "w", kind.tile, mx.AlongRows}, {"dy", "dy", kind.row, mx.AlongRows}, {"dyT", "dy", kind.row, mx.AlongCols}} {
			if prefix := operand.name + "_" + kind.name; c.has(prefix+"_codes") && c.err == nil {
				x := c.tensor(operand.x, tensor.BF16, -1, -1)
				c.coded(prefix, c.quantized(operand.format, operand.along, x.Mat(), mx.RCEIL, nil))
			}
		}
		if suffix := "_" + kind.name + "_f64"; c.has("y"+suffix) && c.err == nil {
			c.products(suffix, kind.row, kind.tile, kind.row, nil)
		}
	}
}

// mxfp4 compares MXFP4 in all scale modes. It returns false if the file has none.
func (c *mxCheck) mxfp4() (found bool) {
	for _, mode := range mx.ScaleModes() {
		if prefix := "e2m1_" + mode.String(); c.has(prefix + "_codes") {
			found = true
			c.coded(prefix, c.quantized(mx.MXFP4, mx.AlongRows, c.tensor("x", tensor.FP32, -1, -1).Mat(), mode, nil))
		}
	}
	return found
}

// sizes returns the ends of the groups whose rows sizes counts.
func (c *mxCheck) sizes() (ends []int32) {
	end := int32(0)
	for _, n := range c.tensor("sizes", tensor.INT32, -1).I32() {
		if n < 0 || n > 1<<24 {
			c.err = fmt.Errorf("sizes has %d: numbers of rows are expected", n)
			return nil
		}
		end += n
		ends = append(ends, end)
	}
	return ends
}

// nvfp4Products compares the products of a layer, or of experts whose rows end at ends.
func (c *mxCheck) nvfp4Products(ends []int32) {
	if c.err == nil {
		c.products("_f64", mx.NVFP4, mx.NVFP4Tile, nvfp4Transformed, ends)
	}
}

// products compares y, dx and dw with the exact products of the decoded operands, whose names have
// the suffix. Each product is made with every sum of at least FP32.
func (c *mxCheck) products(suffix string, row, tile, column mx.Format, ends []int32) {
	x, w := c.tensor("x", tensor.BF16, -1, -1), c.weights(ends)
	m, k, groups := x.Dim(0), x.Dim(1), max(len(ends), 1)
	n := w.Mat().Rows / groups
	dy := c.tensor("dy", tensor.BF16, m, n)
	if c.err == nil && (w.Mat().Cols != k || len(ends) > 0 && int(ends[len(ends)-1]) != m) {
		c.err = fmt.Errorf("w is %v and groups end at %v for x %v: [N, K] or [groups, N, K], %d and [M, K] are expected", w.Dims(), ends, x.Dims(), m)
	}
	if c.err != nil {
		return
	}
	var weightEnds []int32
	if ends == nil {
		ends = []int32{int32(m)}
	} else {
		weightEnds = mx.EqualGroups(groups, n)
	}
	weight := c.quantized(tile, mx.AlongRows, w.Mat(), mx.RCEIL, weightEnds)
	across := weight.WithBlocks(mx.AlongCols)
	inputs, gradients := c.quantized(row, mx.AlongRows, x.Mat(), mx.RCEIL, ends), c.quantized(row, mx.AlongRows, dy.Mat(), mx.RCEIL, ends)
	paddedX, paddedEnds := padded(x, ends, column.Hadamard)
	paddedDY, _ := padded(dy, ends, column.Hadamard)
	inputCols, gradientCols := c.quantized(column, mx.AlongCols, paddedX.Mat(), mx.RCEIL, paddedEnds), c.quantized(column, mx.AlongCols, paddedDY.Mat(), mx.RCEIL, paddedEnds)
	for _, sum := range []mx.Sum{mx.SumFP32, mx.SumExact} {
		y, dx, dw := tensor.New(tensor.FP32, m, n), tensor.New(tensor.FP32, m, k), tensor.New(tensor.FP32, groups, n, k)
		sum.GroupedMatMul(c.ex, y.Mat(), inputs, weight, ends)
		sum.GroupedDgrad(c.ex, dx.Mat(), gradients, across, ends)
		sum.GroupedWgrad(c.ex, dw, gradientCols, inputCols, false)
		c.exact("y"+suffix, sum, y, m, n)
		c.exact("dx"+suffix, sum, dx, m, k)
		if weightEnds == nil {
			c.exact("dw"+suffix, sum, dw, n, k)
		} else {
			c.exact("dw"+suffix, sum, dw, groups, n, k)
		}
	}
}

// padded returns x with rows of zeros after each group, so that its rows fill runs of the
// transform, as in the references. Without a transform it returns x.
func padded(x tensor.Tensor, ends []int32, points int) (tensor.Tensor, []int32) {
	if points == 0 {
		return x, ends
	}
	to := make([]int32, len(ends))
	first, at := int32(0), int32(0)
	for g, end := range ends {
		at += (end - first + int32(points) - 1) / int32(points) * int32(points)
		first, to[g] = end, at
	}
	out := tensor.New(x.DType(), int(at), x.Dim(1))
	first, at = 0, 0
	for g, end := range ends {
		copy(out.Slice(int(at), int(at+end-first)).Bytes(), x.Slice(int(first), int(end)).Bytes())
		first, at = end, to[g]
	}
	return out, to
}

// weights reads w: [N, K], or [groups, N, K] with ends.
func (c *mxCheck) weights(ends []int32) tensor.Tensor {
	if ends == nil {
		return c.tensor("w", tensor.BF16, -1, -1)
	}
	return c.tensor("w", tensor.BF16, len(ends), -1, -1)
}

// exactBound bounds the relative L2 distance of FP32 results from exact products.
const exactBound = 1e-6

// exact compares a product with the exact one of that name.
func (c *mxCheck) exact(name string, sum mx.Sum, got tensor.Tensor, dims ...int) {
	if !c.has(name) || c.err != nil {
		return
	}
	var diff, norm float64
	for i, w := range c.float64s(name, dims...) {
		d := float64(got.F32()[i]) - w
		diff, norm = diff+d*d, norm+w*w
	}
	c.lines = append(c.lines, Line{Name: fmt.Sprintf("%s, %v sums", name, sum), Error: math.Sqrt(diff / max(norm, math.SmallestNonzeroFloat64)), Bound: exactBound, Rule: "relative L2"})
}

// float64s reads a tensor of FP64 of the given extents.
func (c *mxCheck) float64s(name string, dims ...int) []float64 {
	info, _ := c.file.Info(name)
	n := 1
	for i, d := range dims {
		n *= d
		if len(info.Shape) != len(dims) || info.Shape[i] != d {
			n = -1
			break
		}
	}
	if info.DType != safetensors.F64 || n < 0 {
		c.err = fmt.Errorf("%s is %s %v: %s %v is expected", name, info.DType, info.Shape, safetensors.F64, dims)
		return nil
	}
	data, err := c.file.Bytes(name)
	if err != nil {
		c.err = err
		return nil
	}
	all := make([]float64, n)
	for i := range all {
		all[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return all
}
