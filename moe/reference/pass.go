package reference

import (
	"fmt"
	"slices"
	"strings"
)

// formula computes a module. Its methods are the modules' formulas: they read like the paper, and
// name parameters by their paths.
type formula struct {
	tape
	*Config
	call    Call
	batch   *Batch // of the selected sequences
	module  *Module
	layer   int
	rows    []int // selected; nil: all
	mistake string
	numbers [2]float64 // of the experts that it is about, or a constant
	params  map[string]*node
	pass    *Pass
	wrong   error
}

// is reports whether to make a mistake.
func (f *formula) is(mistake string) bool { return f.mistake == mistake }

// pick returns what a mistake has instead of the right value.
func pick[T any](f *formula, wrong map[string]T, right T) T {
	if value, ok := wrong[f.mistake]; ok {
		return value
	}
	return right
}

// flow returns x, without its gradient if the mistake is to be made.
func (f *formula) flow(x *node, mistake string) *node {
	if !f.is(mistake) {
		return x
	}
	y := *x
	y.grad, y.fixed = nil, true
	return &y
}

// tokens returns the selected rows.
func (f *formula) tokens() []int {
	if f.rows != nil {
		return f.rows
	}
	return span(0, f.call.Batch.Batch*f.call.Batch.Seq)
}

// choices returns the selected rows of a replayed choice, integers below most, or nil.
func (f *formula) choices(name string, most int) (all []int) {
	x := f.call.Choices[name].Data
	if k := f.TopK; len(x) == f.call.Batch.Batch*f.call.Batch.Seq*k {
		for _, r := range f.tokens() {
			for _, v := range x[r*k : (r+1)*k] {
				if v < 0 || int(v) >= most {
					f.fail("%s holds %g: expected 0 to %d", name, v, most-1)
					return nil
				}
				all = append(all, int(v))
			}
		}
	} else if x != nil {
		f.fail("%s has %d elements: expected %d for each token", name, len(x), k)
	}
	return all
}

// replayed returns the experts that the run chose, [tokens, TopK], or nil.
func (f *formula) replayed(gate string) []int { return f.choices(gate+".indices", f.Experts) }

// note keeps what the module computes besides its outputs.
func (f *formula) note(name string, values []float64, width int) {
	f.pass.Extra[name] = Tensor{Dims: []int{len(values) / max(width, 1), width}, Data: values}
}

// Forward runs the module.
func (m *Module) Forward(call Call) (*Pass, error) {
	p := &Pass{Extra: map[string]Tensor{}}
	f := &formula{Config: m.config, module: m, call: call, batch: call.Batch, layer: m.Layer, params: map[string]*node{}, pass: p}
	f.rounding, f.fast = call.Rounding, call.Fast
	name, numbers, _ := strings.Cut(call.Mistake, ":")
	f.mistake, f.numbers = name, [2]float64{0, 1}
	if _, err := fmt.Sscanf(numbers+",1", "%g,%g", &f.numbers[0], &f.numbers[1]); numbers != "" && err != nil {
		return nil, fmt.Errorf("mistake %q: expected a number, or numbers of experts, behind the colon", call.Mistake)
	}
	if call.Batch == nil || call.Batch.Batch*call.Batch.Seq < 1 || len(call.In) != len(m.Inputs) {
		return nil, fmt.Errorf("%s: %d inputs: expected %d, and a batch of one token or more", m.Path, len(call.In), len(m.Inputs))
	}
	f.rows = f.selected(m.Kind)
	for i, port := range m.Inputs {
		p.in = append(p.in, f.input(port, call.In[i], i))
	}
	if call.Sequences != nil && !m.Kind.TokenWise() {
		f.batch = call.Batch.sequences(call.Sequences)
	}
	if f.wrong == nil {
		p.out = f.run(m, p.in)
	}
	if f.wrong != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, f.wrong)
	}
	for _, y := range p.out {
		p.Out = append(p.Out, Tensor{Dims: []int{y.rows, y.cols}, Data: y.data})
	}
	p.formula = f
	return p, nil
}

// input returns the selected rows of an input, in the format of its port.
func (f *formula) input(port Port, x Tensor, number int) *node {
	tokens, width := f.call.Batch.Batch*f.call.Batch.Seq, 1
	if widths := f.module.widths; widths != nil {
		width = widths[min(number, len(widths)-1)]
	}
	n := len(x.Data) / tokens
	if n == 0 || n*tokens != len(x.Data) || n%width != 0 || n > width && f.module.Kind != Norm && width > 1 {
		f.fail("%s has %d elements: expected %d for each of %d tokens", port.Name, len(x.Data), width, tokens)
		return nil
	}
	y := &node{rows: tokens, cols: n, data: x.Data}
	if f.rows != nil {
		y.rows, y.data = len(f.rows), nil
		for _, r := range f.rows {
			y.data = append(y.data, x.Data[r*n:(r+1)*n]...)
		}
	}
	f.store(y, port.Name, uint64(number))
	return y
}

// selected returns the rows that the call names, or nil for all.
func (f *formula) selected(kind Kind) (rows []int) {
	if kind.TokenWise() {
		return f.call.Tokens
	}
	for _, s := range f.call.Sequences {
		for i := range f.batch.Seq {
			rows = append(rows, s*f.batch.Seq+i)
		}
	}
	return rows
}

// format returns that of a port, a parameter or a buffer.
func (f *formula) format(name string) Format {
	switch r := f.rounding; {
	case r.Jitter != 0:
		return Exact
	case r.Of != nil:
		return r.Of(name)
	}
	return f.rounding.Format
}

// store gives a value from outside its format, or FP32 if that one does not hold it. It moves the
// value if the rounding says so.
func (f *formula) store(n *node, name string, number uint64) {
	format := f.format(name)
	if jitter := f.rounding.Jitter; jitter != 0 {
		n.data = f.rounding.Format.jitter(n.data, jitter+number)
		return
	}
	if slices.ContainsFunc(n.data, func(v float64) bool { return format.round(v) != v && v == v }) {
		format = FP32
	}
	n.dtype, n.store = format, format
}

// param returns a parameter as [out, in], or [1, n] if it is a vector.
func (f *formula) param(name string) *node {
	if f.Tied && name == "lm_head.weight" {
		name = "model.embed_tokens.weight"
	}
	if n, ok := f.params[name]; ok {
		return n
	}
	n := f.blank(name)
	x, err := f.call.Param(name)
	if n.data = x.Data; err == nil && len(x.Data) != n.rows*n.cols {
		err = fmt.Errorf("%s has dimensions %v: expected %d x %d", name, x.Dims, n.rows, n.cols)
	}
	if err != nil {
		f.fail("%w", err)
		n.data = make([]float64, n.rows*n.cols)
	}
	n.fixed = strings.HasSuffix(name, "e_score_correction_bias")
	if f.rounding.Jitter == 0 {
		f.store(n, name, 0)
	}
	f.params[name] = n
	return n
}

// blank returns a parameter without values.
func (f *formula) blank(name string) *node {
	dims := f.Config.params[name]
	n := &node{rows: 1, cols: dims[len(dims)-1]}
	if len(dims) == 2 {
		n.rows = dims[0]
	}
	return n
}

// optional returns a parameter, or nil if the model has none of that name.
func (f *formula) optional(name string) *node {
	if _, ok := f.Config.params[name]; !ok {
		return nil
	}
	return f.param(name)
}

// run computes the outputs of a module.
func (f *formula) run(m *Module, in []*node) []*node {
	layers := map[Kind]func(path string, x *node) *node{
		Norm: f.norm, Linear: f.project, Attention: f.attention, MLP: f.mlp, MoE: f.moe, Block: f.block,
	}
	switch m.Kind {
	case Embedding:
		return []*node{f.embedding()}
	case Rotary:
		return f.rotaryTables()
	case Core:
		return []*node{f.core(in)}
	case Act:
		return []*node{f.act(in[0], in[1])}
	case Router:
		logits, weights, _ := f.router(m.Path, in[0])
		return []*node{logits, weights}
	case Experts:
		return []*node{f.experts(m.Path, in[0], in[1], f.replayed(strings.TrimSuffix(m.Path, "experts")+"gate"))}
	case Head:
		return []*node{f.head(in[0])}
	case Loss:
		return []*node{f.loss(in[0])}
	case Balance:
		return []*node{f.balance(m, in)}
	case Residual, Handover:
		return []*node{f.glue(in)}
	}
	return []*node{layers[m.Kind](m.Path, in[0])}
}

// Backward returns the gradients of the inputs and of the parameters by name, from those of the
// outputs, in the outputs' dimensions. A gradient without Data is zero; losses need none, it is 1.
// Run it once.
func (p *Pass) Backward(gradOut []Tensor) (in []Tensor, params map[string]Tensor) {
	f := p.formula
	for i, y := range p.out {
		switch {
		case i < len(gradOut) && len(gradOut[i].Data) == len(y.data):
			y.grad = append([]float64(nil), gradOut[i].Data...)
			if f.rounding.Jitter != 0 {
				y.grad = f.rounding.Format.jitter(y.grad, f.rounding.Jitter+uint64(100+i))
			}
		case i < len(gradOut) && len(gradOut[i].Data) != 0:
			panic(fmt.Sprintf("reference: a gradient of %d elements for an output of %d", len(gradOut[i].Data), len(y.data)))
		case len(y.data) == 1:
			y.grad = []float64{1}
		}
	}
	f.tape.run()
	for _, x := range p.in {
		in = append(in, gradient(x))
	}
	if m := f.module; m.Kind == Router { // what weights send, and what the caller added
		p.Extra["logits.grad"] = gradient(p.out[0])
	}
	params = map[string]Tensor{}
	for _, name := range f.module.Params {
		w, ok := f.params[name]
		if !ok { // such as that of an expert without tokens
			w = f.blank(name)
		}
		params[name] = gradient(w)
	}
	return in, params
}

// gradient returns that of a node: zero if none arrived.
func gradient(n *node) Tensor {
	if n.grad == nil {
		n.grad = make([]float64, n.rows*n.cols)
	}
	return Tensor{Dims: []int{n.rows, n.cols}, Data: n.grad}
}
