package moe

import (
	"errors"
	"fmt"

	"spmoe/mx"
)

// Recipe says how the operands of the three products of a linear layer are quantized. The blocks of
// an operand are along the sum of its product. Recipes are compared with ==.
type Recipe struct {
	Forward Product // y = x·wᵀ: inputs, weights
	Dgrad   Product // dx = dy·w: gradients of outputs, weights
	Wgrad   Product // dw = dyᵀ·x: gradients of outputs, inputs
	Sum     mx.Sum  // of all quantized products
}

// Product says how the two operands of a product are quantized. A product of two zero Casts is
// computed in the type of the activations.
type Product struct{ Left, Right mx.Cast }

// Quantizes reports whether the product has quantized operands.
func (p Product) Quantizes() bool { return p.Left.Quantizes() }

// uniform returns a recipe with one cast for inputs and weights, and one for gradients of outputs.
func uniform(xw, dy mx.Cast) *Recipe {
	return &Recipe{Forward: Product{xw, xw}, Dgrad: Product{dy, xw}, Wgrad: Product{dy, xw}}
}

// cast returns the cast to a format with scales by RCEIL.
func cast(f mx.Format) mx.Cast { return mx.Cast{Format: f} }

// validate returns an error if layers cannot multiply by the recipe.
func (r *Recipe) validate() error {
	var errs []error
	var sum error
	for _, p := range []struct {
		name  string
		casts Product
	}{{"forward", r.Forward}, {"dgrad", r.Dgrad}, {"wgrad", r.Wgrad}} {
		if p.casts.Left.Quantizes() != p.casts.Right.Quantizes() {
			errs = append(errs, fmt.Errorf("%s multiplies %v and %v: quantize both operands or neither", p.name, p.casts.Left.Format, p.casts.Right.Format))
		}
		if err := r.Sum.Multiplies(p.casts.Left.Format, p.casts.Right.Format); err != nil && sum == nil {
			sum = err // of one product: the others of a recipe have the same
		}
		if !p.casts.Left.Format.TransformsLike(p.casts.Right.Format) {
			errs = append(errs, fmt.Errorf("%s multiplies %v and %v: transform both operands by the same number of points and with the same signs", p.name, p.casts.Left.Format, p.casts.Right.Format))
		}
	}
	for _, c := range []mx.Cast{r.Forward.Left, r.Wgrad.Right} {
		if c.Quantizes() && c.Format.Block[0] != 1 {
			errs = append(errs, fmt.Errorf("%v has blocks of %d rows: only weights and gradients may, because inputs may be one token", c.Format, c.Format.Block[0]))
		}
	}
	return errors.Join(append(errs, sum)...)
}

// change returns the recipe after edit has changed each cast. The first argument of edit is the
// operand.
func (r *Recipe) change(edit func(o Operand, c *mx.Cast)) *Recipe {
	if r == nil {
		return nil
	}
	changed := *r
	for _, at := range []struct {
		operand Operand
		cast    *mx.Cast
	}{
		{Input, &changed.Forward.Left}, {Weight, &changed.Forward.Right},
		{Gradient, &changed.Dgrad.Left}, {Weight, &changed.Dgrad.Right},
		{Gradient, &changed.Wgrad.Left}, {Input, &changed.Wgrad.Right},
	} {
		if at.cast.Quantizes() {
			edit(at.operand, at.cast)
		}
	}
	return &changed
}

// sharesWeight reports whether one quantized weight serves forward and dgrad, because its blocks
// are squares.
func (r *Recipe) sharesWeight() bool {
	w := r.Forward.Right
	return w == r.Dgrad.Right && w.Quantizes() && w.Format.Block[0] == w.Format.Block[1]
}

// readsWeight reports whether a product reads the weight unquantized.
func (r *Recipe) readsWeight() bool { return !r.Forward.Quantizes() || !r.Dgrad.Quantizes() }

// WeightBytes returns the size of the quantized forms of a weight in training, in bytes per
// element.
func (r *Recipe) WeightBytes() float64 {
	bytes := 0.0
	if r.Forward.Quantizes() {
		bytes += r.Forward.Right.Format.BytesPerElement()
	}
	if r.Dgrad.Quantizes() && !r.sharesWeight() {
		bytes += r.Dgrad.Right.Format.BytesPerElement()
	}
	return bytes
}

// Operand is the role of a quantized tensor in the products of a linear layer.
type Operand uint8

// The operands.
const (
	Input Operand = iota
	Weight
	Gradient // of the layer's output
)

// String implements [fmt.Stringer].
func (o Operand) String() string { return [...]string{"input", "weight", "gradient"}[o] }
