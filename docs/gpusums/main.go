// Gpusums prints the errors of products by K, element format and sum, and draws them in
// docs/gpu-sums.svg.
package main

import (
	"bytes"
	"fmt"
	"image/color"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/tensorcore"
)

// Products are [n, K] by [K, n].
const n, leastK, mostK = 64, 128, 1 << 16

// data are kinds of operands. Products of positive numbers all have one sign.
var data = []struct {
	name string
	draw func(r *rand.Rand) float64
}{
	{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() }},
	{"positive", func(r *rand.Rand) float64 { return r.Float64() }},
}

// A series is a way to compute a product.
type series struct {
	name     string
	multiply func(ex *tensor.Exec, y tensor.Tensor, a, b operand)
	color    color.Color
	dashes   []vg.Length
}

// operand is a matrix [n, K]: rounded to BF16, to E4M3 with one scale, and to MXFP8 and NVFP4.
type operand struct {
	bf16, e4m3   tensor.Tensor // BF16 elements
	mxfp8, nvfp4 mx.Tensor
}

var (
	orange, blue  = color.NRGBA{R: 0xd5, G: 0x5e, A: 255}, color.NRGBA{G: 0x72, B: 0xb2, A: 255}
	green, purple = color.NRGBA{G: 0x9e, B: 0x73, A: 255}, color.NRGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 255}
	dashed        = []vg.Length{4, 3}
)

var all = []series{
	{"bf16, fp32", func(ex *tensor.Exec, y tensor.Tensor, a, b operand) {
		mx.SumFP32.Multiply(ex, y.Mat(), a.bf16.Mat(), b.bf16.Mat().T())
	}, orange, dashed},
	{"bf16, h100 and b200", func(ex *tensor.Exec, y tensor.Tensor, a, b operand) {
		mx.SumH100.Multiply(ex, y.Mat(), a.bf16.Mat(), b.bf16.Mat().T())
	}, orange, nil},
	{"e4m3, fp32", func(ex *tensor.Exec, y tensor.Tensor, a, b operand) {
		mx.SumFP32.Multiply(ex, y.Mat(), a.e4m3.Mat(), b.e4m3.Mat().T())
	}, blue, dashed},
	{"e4m3, h100, one chain", byPlan(tensorcore.H100FastFP8), blue, nil},
	{"e4m3, h100, promoted every 128", byPlan(tensorcore.H100FP8), green, nil},
	{"e4m3, b200 (model)", byPlan(tensorcore.B200FP8), purple, nil},
	{"mxfp8, b200 (model)", func(ex *tensor.Exec, y tensor.Tensor, a, b operand) { mx.SumB200.MatMul(ex, y.Mat(), a.mxfp8, b.mxfp8) }, purple, dashed},
	{"nvfp4, b200 (model)", func(ex *tensor.Exec, y tensor.Tensor, a, b operand) { mx.SumB200.MatMul(ex, y.Mat(), a.nvfp4, b.nvfp4) }, color.Black, nil},
}

// byPlan multiplies E4M3 elements without scales.
func byPlan(p tensorcore.Plan) func(ex *tensor.Exec, y tensor.Tensor, a, b operand) {
	return func(ex *tensor.Exec, y tensor.Tensor, a, b operand) {
		of := func(o operand) tensor.CoreOperand {
			return tensor.CoreOperand{Matrix: o.e4m3.Mat(), Least: format.E4M3.MinExponent()}
		}
		tensor.CoreMatMul(ex, y.Mat(), of(a), of(b), tensor.CoreSum{Plan: p})
	}
}

// newOperand draws an operand.
func newOperand(ex *tensor.Exec, r *rand.Rand, draw func(r *rand.Rand) float64, k int) operand {
	o := operand{bf16: tensor.New(tensor.BF16, n, k), e4m3: tensor.New(tensor.BF16, n, k)}
	largest := 0.0
	for i := range o.bf16.BF16() {
		o.bf16.BF16()[i] = tensor.ToBFloat16(float32(draw(r)))
		largest = max(largest, math.Abs(float64(o.bf16.BF16()[i].Float32())))
	}
	for i, x := range o.bf16.BF16() {
		code := format.E4M3.Encode(x.Float32() * float32(float64(format.E4M3.Max())/largest))
		o.e4m3.BF16()[i] = tensor.ToBFloat16(format.E4M3.Decode(code))
	}
	o.mxfp8, o.nvfp4 = mx.New(nil, mx.E4M3, mx.AlongRows, n, k), mx.New(nil, mx.NVFP4, mx.AlongRows, n, k)
	mx.Quantize(ex, o.mxfp8, o.bf16.Mat(), mx.RCEIL)
	mx.Quantize(ex, o.nvfp4, o.bf16.Mat(), mx.RCEIL)
	return o
}

// exact returns the same product, summed exactly: in FP64, whose errors do not show.
func exact(ex *tensor.Exec, s series, a, b operand) tensor.Tensor {
	y := tensor.New(tensor.FP32, n, n)
	switch s.name[:4] {
	case "bf16":
		mx.SumExact.Multiply(ex, y.Mat(), a.bf16.Mat(), b.bf16.Mat().T())
	case "e4m3":
		mx.SumExact.Multiply(ex, y.Mat(), a.e4m3.Mat(), b.e4m3.Mat().T())
	case "mxfp":
		mx.SumExact.MatMul(ex, y.Mat(), a.mxfp8, b.mxfp8)
	default:
		mx.SumExact.MatMul(ex, y.Mat(), a.nvfp4, b.nvfp4)
	}
	return y
}

// distance returns the relative L2 distance of two tensors, and the largest relative difference of
// an element.
func distance(got, want tensor.Tensor) (l2, largest float64) {
	var square, norm float64
	for i, w := range want.F32() {
		d := float64(got.F32()[i]) - float64(w)
		square, norm = square+d*d, norm+float64(w)*float64(w)
		if w != 0 {
			largest = max(largest, math.Abs(d/float64(w)))
		}
	}
	return math.Sqrt(square / norm), largest
}

func main() {
	ex := tensor.NewParallelExec(2)
	defer ex.Close()
	var row []*plot.Plot
	for _, d := range data {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = d.name+" operands", "K", "relative error of the sum"
		p.X.Scale, p.Y.Scale, p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogScale{}, plot.LogScale{}, plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: 0}
		p.Legend.Top, p.Legend.Left = true, true
		lines := make([]plotter.XYs, len(all))
		fmt.Printf("%s operands: relative L2 error of the sum, and the largest of an element\n%-32s", d.name, "K")
		for k := leastK; k <= mostK; k *= 2 {
			if k%512 != 0 && k != leastK && k != 4*leastK {
				continue
			}
			r := rand.New(rand.NewPCG(1, uint64(k)))
			a, b := newOperand(ex, r, d.draw, k), newOperand(ex, r, d.draw, k)
			fmt.Printf("\n%d\n", k)
			for i, s := range all {
				y := tensor.New(tensor.FP32, n, n)
				s.multiply(ex, y, a, b)
				l2, largest := distance(y, exact(ex, s, a, b))
				lines[i] = append(lines[i], plotter.XY{X: float64(k), Y: max(l2, 1e-9)})
				fmt.Printf("%-32s %8.2g %% %8.2g %%\n", s.name, 100*l2, 100*largest)
			}
		}
		for i, s := range all {
			l, err := plotter.NewLine(lines[i])
			check(err)
			l.Color, l.Dashes, l.Width = s.color, s.dashes, 1.5
			p.Add(l)
			p.Legend.Add(s.name, l)
		}
		row = append(row, p)
	}
	check(write("docs/gpu-sums.svg", row))
}

// write draws plots side by side.
func write(path string, row []*plot.Plot) error {
	canvas := vgsvg.New(900, 420)
	tiles := draw.Tiles{Rows: 1, Cols: len(row), PadX: 24, PadTop: 8, PadBottom: 8, PadLeft: 8, PadRight: 12}
	for i, to := range plot.Align([][]*plot.Plot{row}, tiles, draw.New(canvas))[0] {
		row[i].Draw(to)
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	return os.WriteFile(path, svg.Bytes(), 0o666)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
