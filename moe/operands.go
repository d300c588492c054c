package moe

import (
	"fmt"
	"strings"

	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// Operand says what a tensor that is quantized is to the products of a linear layer.
type Operand uint8

// The operands.
const (
	Input Operand = iota
	Weight
	Gradient // of the layer's output
)

func (o Operand) String() string { return [...]string{"input", "weight", "gradient"}[o] }

// Quantized is one operand of a linear layer's products, or of those of all experts of this rank in
// a layer, on its way from being quantized to being multiplied.
type Quantized struct {
	Layer   int    // that of the MTP module is behind the last
	Linear  string // within the layer: "self_attn.q_a_proj", "experts.gate_up_proj"; of several with one input, the first
	Operand Operand
	Format  mx.Format // of Rows or, if these are not there, of Cols
	Local   bool      // of this rank alone; if not, all ranks hold the same: weights outside the routed experts

	X          tensor.Matrix // [rows, cols] as it was
	Rows, Cols mx.Tensor     // X with blocks along its rows, and along its columns: the zero Tensor if no product needs them
	Ends       []int32       // rows [Ends[g-1], Ends[g]) of X are an expert's; nil: there is one group

	// Tokens' rows that travel between ranks as codes are shown on both sides. The rank that sends
	// them has X as it was, and Rows as they travel; changes do nothing. Where they were received X
	// is only what Rows mean.
	Sent, Received bool

	// Again says that the operand was shown before: it is made anew for the backward pass, see
	// [Recompute], or X is the rows of several passes together, see [Batch.More]. Rows are the zero
	// Tensor if no product needs them once more.
	Again bool
}

// ObserveQuantized calls f with every operand that a linear layer quantizes from now on, in
// training and in evaluation: inputs and gradients in each pass, weights when their Group is
// refreshed. A nil f ends it.
//
// f runs on the rank's goroutine before the operand is multiplied. All of its argument is valid
// during the call only, but codes and scales that f changes are multiplied as they are then: so
// tests can break a recipe. Weights that are not Local must be changed alike on all ranks.
func (m *Model) ObserveQuantized(f func(Quantized)) { m.operands.observer = f }

// operands is where all quantized layers of a model find the observer.
type operands struct{ observer func(Quantized) }

// identity is what an observer is told about a layer.
type identity struct {
	layer  int
	linear string
	local  bool // its weight is this rank's alone
}

// identify tells a layer by its first parameter: gate and up projection are one layer here, and so
// are all experts.
func identify(first *Param, local bool) identity {
	id := identity{local: local}
	var name string
	if _, err := fmt.Sscanf(first.Name, "model.layers.%d.%s", &id.layer, &name); err != nil {
		panic(fmt.Sprintf("moe: %s is not a parameter of a layer", first.Name))
	}
	name = strings.Replace(strings.TrimSuffix(name, ".weight"), "gate_proj", "gate_up_proj", 1)
	if _, expert, ok := strings.Cut(name, "mlp.experts."); ok {
		_, name, _ = strings.Cut(expert, ".")
		name = "experts." + name
	}
	if shared, ok := strings.CutPrefix(name, "mlp.shared_experts."); ok {
		name = "shared_experts." + shared
	}
	id.linear = name
	return id
}

// watched says whether there is an observer. A layer that is not quantized has none.
func (q *mxLinear) watched() bool { return q != nil && q.operands != nil && q.operands.observer != nil }

// show gives an operand to the observer, if there is one, with what it is told about the layer.
func (q *mxLinear) show(shown Quantized) {
	if !q.watched() {
		return
	}
	if shown.Format = shown.Rows.Format; !shown.Format.Quantizes() {
		shown.Format = shown.Cols.Format
	}
	if !shown.Format.Quantizes() {
		return // no product wants it quantized
	}
	id := q.identity
	shown.Layer, shown.Linear, shown.Local = id.layer, id.linear, shown.Operand != Weight || id.local
	q.operands.observer(shown)
}

// showSent gives the observer rows on their way to another rank, where they will be an operand.
func (q *mxLinear) showSent(ex *tensor.Exec, o Operand, x tensor.Matrix, f mx.Format) {
	mark := ex.Mark()
	defer ex.Release(mark)
	rows := mx.New(ex, f, mx.AlongRows, x.Rows, x.Cols)
	mx.Quantize(ex, rows, x, mx.RCEIL)
	q.show(Quantized{Operand: o, X: x, Rows: rows, Sent: true})
}

// showDispatched shows the experts' input as it leaves this rank, if it left as codes that the
// experts multiply: x [tokens, dim], once a token.
func (l *moeLayer) showDispatched(ex *tensor.Exec, a ep.Arrival, x tensor.Tensor) {
	if q := l.routed.gateUp.mx; q.watched() && takes(a.MX, q.Forward.Left) {
		q.showSent(ex, Input, x.Mat(), a.MX.Format)
	}
}

// showCombined is the same for the gradient of the experts' output: weight·dy for each choice of a
// token.
func (l *moeLayer) showCombined(ex *tensor.Exec, a ep.Arrival, dy tensor.Tensor, s *routerState) {
	q := l.routed.down.mx
	if !q.watched() || !takes(a.MX, q.Dgrad.Left) {
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	scaled, sent := ex.New(tensor.FP32, dy.Dim(0), dy.Dim(1)), like(&ex.Arena, dy)
	for k := range l.router.cfg.TopK {
		tensor.Convert(ex, scaled.Mat(), dy.Mat())
		for t := range dy.Dim(0) {
			row := scaled.Index(t).F32()
			tensor.Scale(row, s.weights.Index(t).F32()[k], row)
		}
		tensor.Convert(ex, sent.Mat(), scaled.Mat())
		q.showSent(ex, Gradient, sent.Mat(), a.MX.Format)
	}
}
