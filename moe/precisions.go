package moe

// The built-in precisions and their settings. docs/precision.md has the sources.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spmoe/mx"
	"spmoe/tensor"
)

// Options are the settings of precisions that have some. The zero value is not the default: see
// DefaultOptions. The toml names are those of config files and --set (nvfp4.rht=false).
type Options struct {
	Sum   string `toml:"sum" help:"how products are added: fp32, fast; exact, for quantized products, slow; h100, h100-nopromotion or b200, bit by bit as that GPU's tensor cores do"`
	NVFP4 NVFP4  `toml:"nvfp4"`
	FP8   FP8    `toml:"fp8"`
	MXFP4 MXFP4  `toml:"mxfp4"`
}

// NVFP4 varies precision nvfp4. Each setting is an ablation.
type NVFP4 struct {
	RHT        bool    `toml:"rht" help:"random Hadamard transform of 16 points on both operands of weight gradients, for nvfp4"`
	Stochastic bool    `toml:"stochastic" help:"round gradients stochastically, for nvfp4"`
	Squares    bool    `toml:"2d" help:"quantize weights in 16x16 blocks, with the same codes in both directions, for nvfp4; else in rows of 16"`
	BF16Tail   float64 `toml:"bf16_tail" help:"share of the layers, at the end, that compute in BF16, rounded up to whole layers, for nvfp4"`
}

// FP8 varies precision fp8-block.
type FP8 struct {
	Scale    string `toml:"scale" help:"scales of blocks for fp8-block: free (any FP32 number) or pow2 (a power of two)"`
	Gradient string `toml:"gradient" help:"blocks of output gradients for fp8-block: 1x128, or 128x128, with which training is known to diverge"`
}

// MXFP4 varies precision mxfp4-e2m1.
type MXFP4 struct {
	Products   string `toml:"products" help:"products that mxfp4-e2m1 quantizes: all, forward, dgrad or wgrad; the others are in BF16"`
	Hadamard   string `toml:"hadamard" help:"Hadamard transform of 16 points on both operands of the products of mxfp4-e2m1: none, plain, or signs (with random but fixed signs)"`
	Stochastic bool   `toml:"stochastic" help:"round gradients stochastically, for mxfp4-e2m1"`
}

// DefaultOptions returns the settings of the published precisions.
func DefaultOptions() Options {
	return Options{
		Sum:   mx.SumFP32.String(),
		NVFP4: NVFP4{RHT: true, Stochastic: true, Squares: true, BF16Tail: 0.15},
		FP8:   FP8{Scale: scaleFree, Gradient: gradientRows},
		MXFP4: MXFP4{Products: productsAll, Hadamard: hadamardNone},
	}
}

// Values of settings.
const (
	scaleFree, scalePow2          = "free", "pow2"
	gradientRows, gradientSquares = "1x128", "128x128"

	productsAll, productsForward, productsDgrad, productsWgrad = "all", "forward", "dgrad", "wgrad"
	hadamardNone, hadamardPlain, hadamardSigns                 = "none", "plain", "signs"
)

// Validate returns an error with one line per invalid setting.
func (o Options) Validate() error {
	var errs []error
	if tail := o.NVFP4.BF16Tail; !(tail >= 0 && tail <= 1) {
		errs = append(errs, fmt.Errorf("nvfp4.bf16_tail is %v: give a share of the layers from 0 to 1", tail))
	}
	for _, s := range []struct {
		key, value string
		choices    []string
	}{
		{"sum", o.Sum, sumNames()},
		{"fp8.scale", o.FP8.Scale, []string{scaleFree, scalePow2}},
		{"fp8.gradient", o.FP8.Gradient, []string{gradientRows, gradientSquares}},
		{"mxfp4.products", o.MXFP4.Products, []string{productsAll, productsForward, productsDgrad, productsWgrad}},
		{"mxfp4.hadamard", o.MXFP4.Hadamard, []string{hadamardNone, hadamardPlain, hadamardSigns}},
	} {
		if !slices.Contains(s.choices, s.value) {
			errs = append(errs, fmt.Errorf("%s is %q: use %s", s.key, s.value, strings.Join(s.choices, " or ")))
		}
	}
	return errors.Join(errs...)
}

// precision is NVIDIA's recipe (arXiv 2509.25149; Transformer Engine's NVFP4BlockScaling). Weights
// have the same codes in both directions, so that dgrad is the gradient of the forward product.
// Stochastic rounding makes gradients unbiased. The transform spreads outliers of a weight
// gradient's operands.
func (o NVFP4) precision() Precision {
	x, w, dy := cast(mx.NVFP4), cast(mx.NVFP4), cast(mx.NVFP4)
	if o.Squares {
		w = cast(mx.NVFP4Tile)
	}
	if o.Stochastic {
		dy.Rounding = mx.Stochastic
	}
	xt, dyt := x, dy
	if o.RHT {
		const points = 16
		xt.Format.Hadamard, dyt.Format.Hadamard = points, points
	}
	r := &Recipe{Forward: Product{x, w}, Dgrad: Product{dy, w}, Wgrad: Product{dyt, xt}}
	return Precision{
		Name: "nvfp4", About: "NVFP4 in all three products of every linear layer and expert, the last layers in BF16",
		DType: tensor.BF16, Linears: r, Experts: r, PlainTail: o.BF16Tail,
	}
}

// precision is DeepSeek-V3's recipe (arXiv 2412.19437, section 3.3).
func (o FP8) precision() Precision {
	row, square := mx.FP8Row, mx.FP8Tile
	if o.Scale == scalePow2 {
		row, square = mx.FP8RowPow2, mx.FP8TilePow2
	}
	x, w, dy := cast(row), cast(square), cast(row)
	if o.Gradient == gradientSquares {
		dy = cast(square)
	}
	r := &Recipe{Forward: Product{x, w}, Dgrad: Product{dy, w}, Wgrad: Product{dy, x}}
	return Precision{
		Name: "fp8-block", About: "E4M3 in blocks of 128, as DeepSeek-V3 was trained in, in all three products of every linear layer and expert",
		DType: tensor.BF16, Linears: r, Experts: r,
	}
}

// precision is MXFP4 in the three products, or in one of them, as in the study of arXiv 2605.09825.
func (o MXFP4) precision() Precision {
	xw := cast(mx.MXFP4)
	if o.Hadamard != hadamardNone {
		xw.Format.Hadamard, xw.Format.NoSigns = 16, o.Hadamard == hadamardPlain
	}
	dy := xw
	if o.Stochastic {
		dy.Rounding = mx.Stochastic
	}
	r := uniform(xw, dy)
	for name, p := range map[string]*Product{productsForward: &r.Forward, productsDgrad: &r.Dgrad, productsWgrad: &r.Wgrad} {
		if o.Products != name && o.Products != productsAll {
			*p = Product{}
		}
	}
	return Precision{
		Name: "mxfp4-e2m1", About: "MXFP4 (E2M1) rounded to nearest in all three products of every linear layer and expert",
		DType: tensor.BF16, Linears: r, Experts: r,
	}
}

// sumNames lists the names of sums.
func sumNames() (names []string) {
	for _, s := range mx.Sums() {
		names = append(names, s.String())
	}
	return names
}

// mxfp4 is the recipe of Tseng et al. (arXiv 2502.20586): MXFP4 in the backward pass only. Both
// operands are transformed and rounded stochastically. Elements are multiplied by 3/4 first, so
// that none saturates, and the products by 16/9. Weights draw the same random numbers in each step.
func mxfp4(name, about string, forward Product) Precision {
	back := mx.Cast{Format: mx.MXFP4, Mode: mx.FLOOR, Rounding: mx.Stochastic}
	back.Format.Hadamard, back.Format.Shrink = 64, true
	r := &Recipe{Forward: forward, Dgrad: Product{back, back}, Wgrad: Product{back, back}}
	return Precision{Name: name, About: about, DType: tensor.BF16, Linears: r, Experts: r}
}

// Precisions lists the built-in precisions with their published settings.
func Precisions() []Precision { return DefaultOptions().Precisions() }

// Precisions lists the built-in precisions with these settings, which must be valid.
func (o Options) Precisions() []Precision {
	mxfp8, mxint8 := uniform(cast(mx.E4M3), cast(mx.E4M3)), uniform(cast(mx.INT8), cast(mx.INT8))
	e2m3, e3m2 := uniform(cast(mx.E2M3), cast(mx.E2M3)), uniform(cast(mx.E3M2), cast(mx.E3M2))
	fp8Tensor := uniform(cast(mx.FP8Tensor), cast(mx.FP8Tensor))
	highWgrad := &Recipe{Forward: mxfp8.Forward, Dgrad: mxfp8.Dgrad}
	return []Precision{
		{Name: "fp32", About: "FP32 throughout", DType: tensor.FP32},
		{Name: "bf16", About: "BF16 storage, FP32 accumulation", DType: tensor.BF16},
		{Name: "mxfp8", About: "MXFP8 (E4M3) in all three products of every linear layer and expert", DType: tensor.BF16, Linears: mxfp8, Experts: mxfp8},
		{Name: "mxfp8-experts", About: "MXFP8 in the experts only", DType: tensor.BF16, Experts: mxfp8},
		{Name: "mxfp8-wgrad-bf16", About: "mxfp8 with BF16 weight gradients", DType: tensor.BF16, Linears: highWgrad, Experts: highWgrad},
		{Name: "mxint8", About: "MXINT8 in all three products of every linear layer and expert", DType: tensor.BF16, Linears: mxint8, Experts: mxint8},
		o.NVFP4.precision(),
		o.FP8.precision(),
		{Name: "fp8-tensor", About: "E4M3 with one scale per tensor in all three products of every linear layer and expert", DType: tensor.BF16, Linears: fp8Tensor, Experts: fp8Tensor},
		mxfp4("mxfp4", "MXFP4 in the backward pass, stochastic and with a Hadamard transform; forward in BF16", Product{}),
		mxfp4("mxfp4-mxfp8", "MXFP4 in the backward pass, stochastic and with a Hadamard transform; forward in MXFP8", mxfp8.Forward),
		o.MXFP4.precision(),
		{Name: "mxfp6-e2m3", About: "MXFP6 (E2M3) in all three products of every linear layer and expert", DType: tensor.BF16, Linears: e2m3, Experts: e2m3},
		{Name: "mxfp6-e3m2", About: "MXFP6 (E3M2) in all three products of every linear layer and expert", DType: tensor.BF16, Linears: e3m2, Experts: e3m2},
	}
}

// PrecisionByName returns a built-in precision with its published settings.
func PrecisionByName(name string) (Precision, error) { return DefaultOptions().Precision(name) }

// Precision returns a built-in precision with these settings.
func (o Options) Precision(name string) (Precision, error) {
	if err := o.Validate(); err != nil {
		return Precision{}, err
	}
	sum, err := mx.ParseSum(o.Sum)
	var names []string
	for _, p := range o.Precisions() {
		if p.Name == name {
			return p.WithSum(sum), err
		}
		names = append(names, p.Name)
	}
	return Precision{}, fmt.Errorf("precision is %q: use one of %s", name, strings.Join(names, ", "))
}
