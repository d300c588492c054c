package golden

// Products that tensor cores have computed. See package tensorcore.

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/tensorcore"
)

// tensorCores compares a file of products that a GPU has computed. It returns false if the file is
// not one.
func (c *mxCheck) tensorCores() bool {
	found := false
	for _, info := range c.file.Tensors() {
		prefix, ok := strings.CutSuffix(info.Name, ".a")
		if !ok {
			continue
		}
		found = true
		if c.has(prefix + ".d") {
			c.coreBlocks(prefix)
			continue
		}
		for _, out := range []string{"out", "out_chained", "out_promoted"} {
			if c.has(prefix + "." + out) {
				c.coreProduct(prefix, out)
			}
		}
	}
	return found
}

// coreMatrix is an operand as tensor cores see it.
type coreMatrix struct {
	values tensor.Tensor // FP32 [rows, K]
	least  int           // exponent of the smallest normal number
	bytes  int           // of an element in the file
}

// coreMatrix reads an operand. A negative extent stands for any.
func (c *mxCheck) coreMatrix(name string, rows, cols int) coreMatrix {
	m := coreMatrix{values: tensor.New(tensor.FP32, max(rows, 0), max(cols, 0))}
	info, _ := c.file.Info(name)
	formats := map[string]coreMatrix{
		safetensors.BF16: {least: -126, bytes: 2}, safetensors.F16: {least: -14, bytes: 2},
		safetensors.F8E4M3: {least: format.E4M3.MinExponent(), bytes: 1}, safetensors.F8E5M2: {least: format.E5M2.MinExponent(), bytes: 1},
	}
	f, known := formats[info.DType]
	fits := known && len(info.Shape) == 2 && info.Size > 0 && info.Size <= mostTensor/4
	if fits {
		fits = (rows < 0 || rows == info.Shape[0]) && (cols < 0 || cols == info.Shape[1])
	}
	if c.err == nil && !fits {
		c.err = fmt.Errorf("%s is %s %v: [%d, %d] (-1: any) of BF16, F16, F8_E4M3 or F8_E5M2 is expected, not empty and of at most %d bytes",
			name, info.DType, info.Shape, rows, cols, mostTensor/4)
	}
	if c.err != nil {
		return m
	}
	m = coreMatrix{tensor.New(tensor.FP32, info.Shape...), f.least, f.bytes}
	if f.bytes == 2 {
		var all []float32
		all, c.err = c.file.Float32s(name)
		copy(m.values.F32(), all)
		return m
	}
	codes, err := c.file.Bytes(name)
	c.err = err
	values := map[string]*format.Element{safetensors.F8E4M3: format.E4M3, safetensors.F8E5M2: format.E5M2}[info.DType].Values()
	for i, code := range codes {
		m.values.F32()[i] = values[code]
	}
	return m
}

func (m coreMatrix) elements(row int) []tensorcore.Element {
	k := m.values.Dim(1)
	all := make([]tensorcore.Element, k)
	for i := range all {
		all[i] = tensorcore.ElementOf(m.values.F32()[row*k+i], m.least)
	}
	return all
}

// coreUnit returns the unit of the file's device for elements of some bytes.
func (c *mxCheck) coreUnit(bytes int) tensorcore.Unit {
	switch blackwell := strings.Contains(c.file.Metadata()["device"], "B200"); {
	case blackwell && bytes == 2:
		return tensorcore.BlackwellBF16
	case blackwell:
		return tensorcore.BlackwellFP8
	case bytes == 2:
		return tensorcore.HopperBF16
	}
	return tensorcore.HopperFP8
}

// coreBlocks compares single blocks: d = a·b + c, row by row.
func (c *mxCheck) coreBlocks(prefix string) {
	a := c.coreMatrix(prefix+".a", -1, -1)
	rows := a.values.Dim(0)
	b := c.coreMatrix(prefix+".b", rows, a.values.Dim(1))
	sums, want := c.tensor(prefix+".c", tensor.FP32, rows), c.tensor(prefix+".d", tensor.FP32, rows)
	if c.err != nil {
		return
	}
	unit := c.coreUnit(a.bytes)
	c.sameBits(prefix+".d", func(i int) float32 { return unit.Chain(sums.F32()[i], a.elements(i), b.elements(i)) }, want.F32())
}

// coreProduct compares a product a·bᵀ.
func (c *mxCheck) coreProduct(prefix, out string) {
	a := c.coreMatrix(prefix+".a", -1, -1)
	k := a.values.Dim(1)
	b := c.coreMatrix(prefix+".b", -1, k)
	want := c.tensor(prefix+"."+out, tensor.FP32, a.values.Dim(0), b.values.Dim(0))
	plan := tensorcore.Plan{Unit: c.coreUnit(a.bytes)}
	if out == "out_promoted" || c.has(prefix+".scale_a") {
		plan.Promote = tensorcore.H100FP8.Promote
	}
	left, right := tensor.CoreOperand{Matrix: a.values.Mat(), Least: a.least}, tensor.CoreOperand{Matrix: b.values.Mat(), Least: b.least}
	if c.has(prefix + ".scale_a") {
		runs := (k + plan.Promote - 1) / plan.Promote
		left.Scales = c.chainScales(prefix+".scale_a", a.values.Dim(0), runs, plan.Promote)
		right.Scales = c.chainScales(prefix+".scale_b", b.values.Dim(0), runs, plan.Promote)
	}
	if c.err != nil {
		return
	}
	got := tensor.New(tensor.FP32, want.Dim(0), want.Dim(1))
	tensor.CoreMatMul(c.ex, got.Mat(), left, right, tensor.CoreSum{Plan: plan})
	c.sameBits(prefix+"."+out, func(i int) float32 { return got.F32()[i] }, want.F32())
}

// chainScales reads the scales of an operand's rows: a row of scales for each, or for all of a
// square of 128.
func (c *mxCheck) chainScales(name string, rows, runs, run int) tensorcore.BlockScales {
	s := tensorcore.BlockScales{Type: tensorcore.ScaleFP32, RowStride: runs, RunStride: 1, Run: run, Rows: 1}
	info, _ := c.file.Info(name)
	if squares := (rows + run - 1) / run; len(info.Shape) == 2 && info.Shape[0] == squares && squares < rows {
		s.Rows, rows = run, squares
	}
	if values := c.tensor(name, tensor.FP32, rows, runs); c.err == nil {
		s.Data = unsafe.Pointer(unsafe.SliceData(values.F32()))
	}
	return s
}

// sameBits is floats, but NaNs must have the same bits.
func (c *mxCheck) sameBits(name string, got func(i int) float32, want []float32) {
	c.bits(name, len(want), func(i int) bool { return math.Float32bits(got(i)) == math.Float32bits(want[i]) },
		func(i int) string { return fmt.Sprintf("%g, reference %g", got(i), want[i]) })
}
