package moe

import (
	"strconv"
	"strings"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// Quantized is one operand of a linear layer's products, or of the products of all experts of this
// rank in a layer, after quantization and before multiplication.
type Quantized struct {
	Layer int
	// within the layer: "self_attn.q_a_proj", "experts.gate_up_proj"; of several layers with the
	// same input, the first
	Linear  string
	Operand Operand
	Format  mx.Format // of Rows or, without Rows, of Cols
	// on this rank only, or here and on later ranks, which hold replicas of an expert; otherwise an
	// earlier rank shows the same
	Local bool

	X tensor.Matrix // [rows, cols] before quantization
	// X with blocks along its rows, and along its columns: the zero Tensor if no product needs them
	Rows, Cols mx.Tensor
	// rows [Ends[g-1], Ends[g]) of X belong to expert g; nil: there is one group
	Ends []int32

	// Received says that the rows came from other ranks as codes. X holds the values of Rows.
	Received bool

	// Elsewhere says that another rank has quantized this weight, in memory that they share, and
	// has shown it first. Do not change it.
	Elsewhere bool

	// Again says that the operand was shown before. It is quantized again for the backward pass,
	// see [Recompute], or X has the rows of several passes, see [Batch.More]. Rows is the zero
	// Tensor if no product needs it again.
	Again bool
}

// operands holds the observer for all quantized layers of a model.
type operands struct{ observer func(Quantized) }

// identity is how a layer is named to the observer.
type identity struct {
	layer  int
	linear string
	local  bool // no earlier rank has its weight
}

// identify derives a layer's identity from its first parameter: gate and up projection are one
// layer here, and so are all experts.
func identify(first *Param, local bool) identity {
	number, name, _ := strings.Cut(strings.TrimPrefix(first.Name, "model.layers."), ".")
	layer, _ := strconv.Atoi(number)
	name = strings.Replace(strings.TrimSuffix(name, ".weight"), "gate_proj", "gate_up_proj", 1)
	if _, expert, ok := strings.Cut(name, "mlp.experts."); ok {
		_, name, _ = strings.Cut(expert, ".")
		name = "experts." + name
	}
	if shared, ok := strings.CutPrefix(name, "mlp.shared_experts."); ok {
		name = "shared_experts." + shared
	}
	return identity{layer, name, local}
}

// watched reports whether there is an observer.
func (q *mxLinear) watched() bool { return q.operands != nil && q.operands.observer != nil }

// show passes an operand and the layer's identity to the observer, if there is one.
func (q *mxLinear) show(shown Quantized) {
	if !q.watched() {
		return
	}
	if shown.Format = shown.Rows.Format; !shown.Format.Quantizes() {
		shown.Format = shown.Cols.Format
	}
	if !shown.Format.Quantizes() {
		return // no product needs it quantized
	}
	id := q.identity
	shown.Layer, shown.Linear, shown.Local = id.layer, id.linear, shown.Operand != Weight || id.local
	q.operands.observer(shown)
}

// mxLinear multiplies for a linear layer according to its recipe. It holds the quantized forms of
// the weight, computed once per step. Inputs and gradients are quantized once per pass for all
// products that need them; their quantized forms are in their activation.
type mxLinear struct {
	Recipe
	identity identity
	// number of the first of this rank's experts
	firstExpert int
	peers       *collective.Comm // ranks that have other rows of inputs and gradients, for scales of tensors; nil: none
	operands    *operands        // holds the model's observer; nil: there is none
	inference   bool             // there is no backward pass
	rows, cols  mx.Tensor        // of the weight, [groups·N, K]: for the forward product, and for dgrad; zero: not needed
}
