package moe

import (
	"errors"
	"fmt"
	"math"
	"slices"

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
	// end that compute in DType regardless of the recipes. Layers that predict further ahead come
	// after the last layer and count with it.
	PlainFirst, PlainLast int
	// PlainTail is PlainLast as a share of the layers, rounded up. The larger number counts.
	PlainTail float64

	// Sum adds the products of linear layers, experts and the output that are in BF16. Those of the
	// router and of attention are always added in FP32.
	Sum mx.Sum

	// Layers are the recipes of single layers, which override all of the above. If several select a
	// layer, the last one counts.
	Layers []LayerRecipe
}

// Quantizes reports whether any layer has quantized products.
func (p Precision) Quantizes() bool { return len(p.recipes()) > 0 }

// recipes lists all recipes of the precision.
func (p Precision) recipes() (all []*Recipe) {
	all = append(all, p.Linears, p.Experts)
	for _, rule := range p.Layers {
		all = append(all, rule.Recipe)
	}
	return slices.DeleteFunc(all, func(r *Recipe) bool { return r == nil })
}

// any reports whether is holds for the cast of an operand.
func (p Precision) any(is func(mx.Cast) bool) (found bool) {
	for _, r := range p.recipes() {
		r.change(func(_ Operand, c *mx.Cast) { found = found || is(*c) })
	}
	return found
}

// scalesTensors reports whether an operand has a scale per tensor.
func (p Precision) scalesTensors() bool {
	return p.any(func(c mx.Cast) bool { return c.Format.TensorScale })
}

// draws reports whether an operand is rounded stochastically.
func (p Precision) draws() bool {
	return p.any(func(c mx.Cast) bool { return c.Rounding == mx.Stochastic })
}

// Validate returns an error if a model cannot compute in this precision.
func (p Precision) Validate() error {
	var errs []error
	for _, r := range p.recipes() {
		if err := r.validate(); err != nil && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
	}
	if p.Sum.OfGPU() && p.DType != tensor.BF16 {
		errs = append(errs, fmt.Errorf("products in %v are not those of the tensor cores of %v: use bf16, or sum fp32", p.DType, p.Sum))
	}
	if p.PlainFirst < 0 || p.PlainLast < 0 {
		errs = append(errs, fmt.Errorf("%d layers at the beginning and %d at the end are not quantized: give 0 or more", p.PlainFirst, p.PlainLast))
	}
	if !(p.PlainTail >= 0 && p.PlainTail <= 1) {
		errs = append(errs, fmt.Errorf("a share of %v of the layers is not quantized: give 0 to 1", p.PlainTail))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("moe: precision %s: %w", p.Name, err)
	}
	return nil
}

// With returns the precision with another rule for E8M0 scales and, unless gradient is nil, another
// format of output gradients, in all quantized products. Formats with Shrink need their own rule.
func (p Precision) With(gradient *mx.Format, mode mx.ScaleMode) Precision {
	edit := func(o Operand, c *mx.Cast) {
		if c.Format.Scale == mx.ScaleE8M0 && !c.Format.Shrink {
			c.Mode = mode
		}
		if o == Gradient && gradient != nil {
			c.Format = *gradient
		}
	}
	return p.changed(func(r *Recipe) *Recipe { return r.change(edit) })
}

// WithSum returns the precision with another sum in all recipes. Only a GPU's applies to products
// in BF16.
func (p Precision) WithSum(s mx.Sum) Precision {
	if s.OfGPU() {
		p.Sum = s
	}
	return p.changed(func(r *Recipe) *Recipe {
		if r == nil {
			return nil
		}
		other := *r
		other.Sum = s
		return &other
	})
}

// changed returns the precision with other recipes.
func (p Precision) changed(change func(*Recipe) *Recipe) Precision {
	p.Linears, p.Experts, p.Layers = change(p.Linears), change(p.Experts), slices.Clone(p.Layers)
	for i, rule := range p.Layers {
		p.Layers[i].Recipe = change(rule.Recipe)
	}
	return p
}

// CheckDecoding returns an error if a row of a forward pass depends on the others, so that decoding
// cannot have the bits of training.
func (p Precision) CheckDecoding() error {
	for _, r := range p.recipes() {
		switch x := r.Forward.Left; {
		case x.Quantizes() && x.Format.TensorScale:
			return fmt.Errorf("precision %s: the scale of an input in %v is that of all tokens of a pass, so the numbers of a token depend on the others", p.Name, x.Format)
		case x.Rounding == mx.Stochastic:
			return fmt.Errorf("precision %s: inputs in %v are rounded by random numbers of their place in a training step", p.Name, x.Format)
		}
	}
	return nil
}

// CheckReplicas returns an error if a block may have rows of several replicas of an expert, which
// would have scales of their own.
func (p Precision) CheckReplicas() error {
	for _, r := range p.recipesOf(Expert) {
		f := r.Dgrad.Left.Format
		if !f.Quantizes() || f.Block[0] == 1 {
			continue
		}
		return fmt.Errorf("precision %s: a block of gradients in %v has %d rows of an expert, which replicas would divide: exchange tokens among all ranks", p.Name, f, f.Block[0])
	}
	return nil
}

// chains reports whether a sum over rows can go on with that of earlier ones: see mx.Sum.Continues.
func (r *Recipe) chains() bool {
	left, right := r.Wgrad.Left.Format, r.Wgrad.Right.Format
	return !left.Quantizes() && r.Sum.OfGPU() || r.Sum.Continues(left, right)
}

// DependsOnPasses reports whether results depend on the number of passes of a step: because scales
// belong to all rows of a pass, those of a tensor or of an expert's blocks of several rows, or
// because random numbers round inputs of forward products, which are those of the pass.
func (p Precision) DependsOnPasses() bool {
	return p.scalesTensors() || p.CheckReplicas() != nil || p.CheckDecoding() != nil
}

// continuesSums reports whether the weight gradients of routed experts in a later pass can go on
// with the sums of earlier ones. Otherwise the rows of all passes are multiplied together.
func (p Precision) continuesSums() bool {
	plain := Recipe{Sum: p.Sum}
	for _, r := range append(p.recipesOf(Expert), &plain) {
		if !r.Sum.Continues(r.Wgrad.Left.Format, r.Wgrad.Right.Format) {
			return false
		}
	}
	return true
}

// TokenBlock returns the number of tokens that share a block or a transform when gradients of
// weights are computed. Every layout has the same bits if it divides the length of a sequence.
// Otherwise a block has tokens of several sequences, and ranks cut it.
func (p Precision) TokenBlock() int {
	most := 1
	for _, r := range p.recipes() {
		for _, c := range []mx.Cast{r.Wgrad.Left, r.Wgrad.Right} {
			if c.Quantizes() {
				most = max(most, c.Format.Block[1], c.Format.Hadamard)
			}
		}
	}
	return most
}

// Unquantized returns the precision that computes everything in dtype.
func Unquantized(dtype tensor.DType) Precision { return Precision{Name: dtype.String(), DType: dtype} }

// of returns the recipe for weights of a part in one layer of a model with layers layers; nil: not
// quantized.
func (p Precision) of(part Part, layer, layers int) *Recipe {
	for _, rule := range slices.Backward(p.Layers) {
		if part.Class().quantizable() && rule.Select.has(part, layer, layers) {
			return rule.Recipe
		}
	}
	last := max(p.PlainLast, int(math.Ceil(p.PlainTail*float64(layers)))) // plain layers at the end
	if layer < p.PlainFirst || last > 0 && layer >= layers-last {
		return nil // without plain layers at the end, those that predict further ahead are quantized
	}
	return p.Of(part.Class())
}

// recipesOf lists the recipes that weights of a class may have.
func (p Precision) recipesOf(class Class) (all []*Recipe) {
	all = append(all, p.Of(class))
	for _, rule := range p.Layers {
		if part := kinds[rule.Select.kind]; part == "" || part.Class() == class {
			all = append(all, rule.Recipe)
		}
	}
	return slices.DeleteFunc(all, func(r *Recipe) bool { return r == nil })
}

// Of returns the recipe for weights of a class in layers without one of their own; nil: they are
// not quantized.
func (p Precision) Of(class Class) *Recipe {
	switch class {
	case Linear:
		return p.Linears
	case Expert:
		return p.Experts
	}
	return nil
}
