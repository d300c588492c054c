package moe

import (
	"fmt"
	"strings"

	"spmoe/mx"
	"spmoe/tensor"
)

// Precision says in which number formats a model computes. Embedding, router, norms and the output
// projection are never quantised.
type Precision struct {
	Name    string
	About   string
	DType   tensor.DType // of weights and activations
	Linears *MX          // products of attention, dense and shared networks; nil: in DType
	Experts *MX          // grouped products of the routed experts; nil: in DType
}

// MX says how the three products of a layer are quantised: every operand in blocks of 32 along
// the dimension that is summed over.
type MX struct {
	Format    mx.Format // of weights and inputs
	Gradient  mx.Format // of output gradients
	Scale     mx.ScaleMode
	HighWgrad bool // weight gradients from the operands as they are, in DType
}

// Precisions lists the built-in recipes.
func Precisions() []Precision {
	e4m3, int8 := &MX{}, &MX{Format: mx.INT8, Gradient: mx.INT8}
	return []Precision{
		{"fp32", "FP32 throughout", tensor.FP32, nil, nil},
		{"bf16", "BF16 storage, FP32 accumulation", tensor.BF16, nil, nil},
		{"mxfp8", "MXFP8 (E4M3) in all three products of every linear layer and expert", tensor.BF16, e4m3, e4m3},
		{"mxfp8-experts", "MXFP8 in the experts only", tensor.BF16, nil, e4m3},
		{"mxfp8-wgrad-bf16", "mxfp8 with BF16 weight gradients", tensor.BF16, &MX{HighWgrad: true}, &MX{HighWgrad: true}},
		{"mxint8", "MXINT8 in all three products of every linear layer and expert", tensor.BF16, int8, int8},
	}
}

// PrecisionByName returns a built-in recipe.
func PrecisionByName(name string) (Precision, error) {
	var names []string
	for _, p := range Precisions() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Precision{}, fmt.Errorf("precision is %q: use one of %s", name, strings.Join(names, ", "))
}

// With returns the recipe with another scale rule, and another format of output gradients where it is
// not nil, in all products that are quantised. Only 8-bit formats can be multiplied.
func (p Precision) With(gradient *mx.Format, scale mx.ScaleMode) (Precision, error) {
	if gradient != nil && *gradient != mx.E4M3 && *gradient != mx.E5M2 && *gradient != mx.INT8 {
		return p, fmt.Errorf("gradients in %v cannot be multiplied: use e4m3, e5m2 or int8", *gradient)
	}
	change := func(how *MX) *MX {
		if how == nil {
			return nil
		}
		changed := *how
		changed.Scale = scale
		if gradient != nil {
			changed.Gradient = *gradient
		}
		return &changed
	}
	p.Linears, p.Experts = change(p.Linears), change(p.Experts)
	return p, nil
}

// Unquantized returns the recipe that computes in dtype throughout.
func Unquantized(dtype tensor.DType) Precision { return Precision{Name: dtype.String(), DType: dtype} }
