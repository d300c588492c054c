package moe

import (
	"errors"
	"fmt"
	"strings"

	"spmoe/mx"
	"spmoe/tensor"
)

// Precision is the set of number formats that a model computes in. Embedding, router, norms and the
// output projection are never quantized.
type Precision struct {
	Name    string
	About   string
	DType   tensor.DType // of weights and activations
	Linears *Recipe      // products of attention, dense and shared networks; nil: in DType
	Experts *Recipe      // grouped products of the routed experts; nil: in DType

	// PlainFirst and PlainLast are the numbers of transformer layers at the beginning and at the
	// end that compute in DType regardless of the recipes. The MTP module comes after the last
	// layer and counts with it.
	PlainFirst, PlainLast int
}

// Precisions lists the built-in recipes.
func Precisions() []Precision {
	mxfp8, mxint8 := uniform(cast(mx.E4M3), cast(mx.E4M3)), uniform(cast(mx.INT8), cast(mx.INT8))
	highWgrad := &Recipe{Forward: mxfp8.Forward, Dgrad: mxfp8.Dgrad}
	return []Precision{
		{Name: "fp32", About: "FP32 throughout", DType: tensor.FP32},
		{Name: "bf16", About: "BF16 storage, FP32 accumulation", DType: tensor.BF16},
		{Name: "mxfp8", About: "MXFP8 (E4M3) in all three products of every linear layer and expert", DType: tensor.BF16, Linears: mxfp8, Experts: mxfp8},
		{Name: "mxfp8-experts", About: "MXFP8 in the experts only", DType: tensor.BF16, Experts: mxfp8},
		{Name: "mxfp8-wgrad-bf16", About: "mxfp8 with BF16 weight gradients", DType: tensor.BF16, Linears: highWgrad, Experts: highWgrad},
		{Name: "mxint8", About: "MXINT8 in all three products of every linear layer and expert", DType: tensor.BF16, Linears: mxint8, Experts: mxint8},
	}
}

// PrecisionNames lists the names of the built-in recipes.
func PrecisionNames() []string {
	var names []string
	for _, p := range Precisions() {
		names = append(names, p.Name)
	}
	return names
}

// PrecisionByName returns a built-in recipe.
func PrecisionByName(name string) (Precision, error) {
	for _, p := range Precisions() {
		if p.Name == name {
			return p, nil
		}
	}
	return Precision{}, fmt.Errorf("precision is %q: use one of %s", name, strings.Join(PrecisionNames(), ", "))
}

// Quantizes reports whether any layer has quantized products.
func (p Precision) Quantizes() bool { return p.Linears != nil || p.Experts != nil }

// Validate returns an error if a model cannot compute in this precision.
func (p Precision) Validate() error {
	var errs []error
	for _, r := range []*Recipe{p.Linears, p.Experts} {
		if r != nil {
			errs = append(errs, r.validate())
		}
	}
	if p.PlainFirst < 0 || p.PlainLast < 0 {
		errs = append(errs, fmt.Errorf("%d layers at the beginning and %d at the end are not quantized: give 0 or more", p.PlainFirst, p.PlainLast))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("moe: precision %s: %w", p.Name, err)
	}
	return nil
}

// With returns the precision with another rule for E8M0 scales and, unless gradient is nil, another
// format of output gradients, in all quantized products.
func (p Precision) With(gradient *mx.Format, mode mx.ScaleMode) Precision {
	edit := func(o Operand, c *mx.Cast) {
		c.Mode = mode
		if o == Gradient && gradient != nil {
			c.Format = *gradient
		}
	}
	p.Linears, p.Experts = p.Linears.change(edit), p.Experts.change(edit)
	return p
}

// Unquantized returns the precision that computes everything in dtype.
func Unquantized(dtype tensor.DType) Precision { return Precision{Name: dtype.String(), DType: dtype} }

// of returns the recipe for weights of a class in one layer of a model with layers layers; nil: not
// quantized.
func (p Precision) of(class Class, layer, layers int) *Recipe {
	if layer < p.PlainFirst || p.PlainLast > 0 && layer >= layers-p.PlainLast {
		return nil // without PlainLast the MTP module, layer number layers, is quantized
	}
	return p.Of(class)
}

// Of returns the recipe for weights of a class in layers that are quantized; nil: none is.
func (p Precision) Of(class Class) *Recipe {
	switch class {
	case Linear:
		return p.Linears
	case Expert:
		return p.Experts
	}
	return nil
}
