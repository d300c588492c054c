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
	batch   *Batch  // of the selected sequences
	outer   *Module // that was asked for
	module  *Module
	layer   int
	rows    []int // selected; nil: all
	mistake string
	numbers [2]float64 // of the experts that it is about, or a constant
	state
	trace *Trace // that it records; nil: none
	wrong error
}

// state is what a formula has computed.
type state struct {
	weights map[string]*node // by parameter
	values  map[string]*node // by the labels of ports
	chosen  map[string][]int // by router
	results map[string]Tensor
}

// Run computes a module, forward and on request backward. The results are named as in a step
// folder: outputs by the labels of ports, gradients of inputs by those of their gradients, and
// gradients of parameters by parameter. A router adds its own PATH.scores, PATH.choice (scores
// with the selection bias), PATH.groups and PATH.indices, whatever was replayed. The whole model
// has the ports of all modules.
func (m *Module) Run(call Call) (results map[string]Tensor, err error) {
	return m.runFrom(call, nil, 0)
}

// runFrom is Run with a trace: an empty one records the run. From one that is recorded, the run
// takes all that was computed before one of the modules inside m.
func (m *Module) runFrom(call Call, trace *Trace, first int) (results map[string]Tensor, err error) {
	f := &formula{
		Config: m.config, outer: m, module: m, call: call, batch: call.Batch,
		state: state{map[string]*node{}, map[string]*node{}, map[string][]int{}, map[string]Tensor{}},
	}
	f.rounding, f.fast, f.forward = call.Rounding, call.Fast, !call.Backward
	if call.Batch == nil || call.Batch.Batch*call.Batch.Seq < 1 {
		return nil, fmt.Errorf("%s: expected a batch of one token or more", m.Path)
	}
	if err := f.parseMistake(call.Mistake); err != nil {
		return nil, err
	}
	f.rows = call.Rows(m.Kind)
	for i, p := range m.Inputs {
		f.values[p.Label()] = f.input(p, i)
	}
	if call.Sequences != nil && !m.Kind.TokenWise() {
		f.batch = call.Batch.sequences(call.Sequences)
	}
	if trace != nil && trace.right == nil {
		f.trace = trace
		trace.reach(0, f)
	} else if trace != nil {
		f.state = trace.before[first].clone()
	}
	if f.wrong == nil {
		f.run(m, first)
	}
	if f.wrong == nil {
		f.finish(m)
	}
	if f.wrong != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, f.wrong)
	}
	return f.results, nil
}

// finish runs backward and collects the results.
func (f *formula) finish(m *Module) {
	ports := slices.Concat(m.Inputs, m.Outputs)
	if m.Kind == Model {
		for _, child := range m.Children {
			if !child.OfGradients {
				ports = slices.Concat(ports, child.Inputs, child.Outputs)
			}
		}
	}
	for _, p := range ports {
		if y := f.values[p.Label()]; y != nil && !slices.Contains(m.Inputs, p) {
			f.results[p.Label()] = f.shaped(m, p, Tensor{Dims: []int{y.rows, y.cols}, Data: y.data})
		}
	}
	if m.Kind.Glue() || !f.call.Backward || !f.seed(m) || f.wrong != nil {
		return
	}
	f.tape.run()
	for _, p := range ports {
		if y := f.values[p.Label()]; y != nil && p.Grad != "" && (m.Kind == Model || slices.Contains(m.Inputs, p) || m.Kind == Router) {
			f.results[p.Gradient().Label()] = f.shaped(m, p, gradient(y))
		}
	}
	for _, name := range m.Params {
		w, ok := f.weights[name]
		if !ok { // such as that of an expert without tokens
			w = f.blank(name)
		}
		f.results[name] = gradient(w)
	}
}

// shaped gives a tensor of entries its dimension of sequences, if all have the same number.
func (f *formula) shaped(m *Module, p Port, x Tensor) Tensor {
	if m.ofEntries(p) && x.Dims[0]%f.batch.Batch == 0 {
		x.Dims = []int{f.batch.Batch, x.Dims[0] / f.batch.Batch, x.Dims[1]}
	}
	return x
}

// seed sets the gradients of outputs and losses. It reports whether all are given; of a router, the
// gradient of its logits has all that its weights sent.
func (f *formula) seed(m *Module) bool {
	for path, by := range f.call.Losses {
		if y := f.values[path]; y != nil && y.cols == 1 {
			y.grad = []float64{by}
		}
	}
	for i, p := range m.Outputs {
		y := f.values[p.Label()]
		g, ok := f.call.Given(p.Gradient().Label())
		if p.Grad == "" {
			continue
		}
		if !ok && m.Kind == Router && i == 0 {
			continue
		} else if !ok {
			return false
		}
		grad := slices.Clone(g.Rows(f.rows, f.call.Batch.Batch*f.call.Batch.Seq).Data)
		if len(grad) != len(y.data) {
			if !m.ofEntries(p) { // else the run has other entries
				f.fail("%s has %d elements: expected those of %s, %d", p.Grad, len(grad), p.Name, len(y.data))
			}
			return false
		}
		y.grad = grad
		if jitter := f.rounding.Jitter; jitter != 0 {
			y.grad = f.rounding.Format.jitter(y.grad, jitter+uint64(100+i))
		}
		if m.Kind == Router {
			return true
		}
	}
	return true
}

// run computes the outputs of a module from values of its inputs. A coarse one runs the finest
// modules inside it, from the first on. Losses of router logits run if they count.
func (f *formula) run(m *Module, first int) {
	if m.Children == nil {
		f.module, f.layer = m, m.Layer
		var in []*node
		for _, p := range m.Inputs {
			in = append(in, f.read(p))
		}
		for i, y := range f.outputs(m, in) {
			f.write(m.Outputs[i], y)
		}
		return
	}
	for i, child := range m.Children[first:] {
		skip := child.Children != nil || child.OfGradients || (child.Kind == Balance || child.Kind == IndexLoss) && f.call.Losses[child.Path] == 0 || child.Kind == Rotary
		if !skip && f.wrong == nil && f.values[child.Outputs[0].Label()] == nil {
			f.trace.reach(first+i, f)
			f.run(child, 0)
		}
	}
}

func (f *formula) read(p Port) *node {
	if x, ok := f.values[p.Label()]; ok {
		return x
	}
	x := f.values[p.Name]
	if x == nil {
		f.fail("nothing computes %s", p.Name)
		return f.constant(1, max(p.Hi, 1), make([]float64, max(p.Hi, 1)), Exact)
	}
	f.values[p.Label()] = f.columns(x, span(p.Lo, p.Hi))
	return f.values[p.Label()]
}

// look returns a tensor that is no input of the module, as a constant: one that it computed, or one
// of the run.
func (f *formula) look(p Port) *node {
	if x := f.values[p.Label()]; x != nil {
		return f.detached(x)
	}
	if x := f.values[p.Name]; x != nil {
		return f.detached(f.columns(x, span(p.Lo, p.Hi)))
	}
	x, ok := f.call.Given(p.Label())
	if tokens := f.call.Batch.Batch * f.call.Batch.Seq; ok && len(x.Data)%tokens == 0 {
		x.Dims = []int{tokens, len(x.Data) / tokens}
		x = x.Rows(f.rows, tokens)
		y := f.constant(x.Dims[0], x.Dims[1], x.Data, Exact)
		f.store(y, p.Name, 0)
		return y
	}
	f.fail("the folder has no %s", p.Label())
	return f.constant(len(f.tokens()), 1, make([]float64, len(f.tokens())), Exact)
}

// write stores a port, which may be the next columns of a wider tensor.
func (f *formula) write(p Port, y *node) {
	f.values[p.Label()] = y
	if before := f.values[p.Name]; p.Hi > 0 && before != nil {
		y = f.join(before, y)
	}
	f.values[p.Name] = y
}

// outputs computes one of the finest modules.
func (f *formula) outputs(m *Module, in []*node) []*node {
	switch m.Kind {
	case Embedding:
		return []*node{f.embedding()}
	case Rotary:
		return f.rotaryTables()
	case Norm:
		return []*node{f.norm(m.Path, in[0])}
	case Linear:
		return []*node{f.project(m.Path, in[0])}
	case Grouped:
		return []*node{f.grouped(m.Path, in[0])}
	case Hyper:
		return f.hyper(m.Path, in[0])
	case HyperHead:
		return []*node{f.collapseHead(m.Path, in[0])}
	case Expand:
		return []*node{f.expand(in)}
	case Mix:
		if m.OfGradients {
			return f.mixBack(in)
		}
		return []*node{f.mix(in[0], in[1], in[2], in[3])}
	case Pool:
		return []*node{f.pool(strings.TrimSuffix(m.Path, ".pool"), in[0], in[1])}
	case Core:
		return []*node{f.core(in)}
	case LayerNorm:
		return []*node{f.layerNorm(m.Path, in[0])}
	case Index:
		return []*node{f.index(m.Choice(), in)}
	case IndexLoss:
		return []*node{f.indexLoss(m, in)}
	case Act:
		return []*node{f.act(in[0], in[1])}
	case Router:
		return f.router(m.Path, in[0])
	case Experts:
		return []*node{f.experts(m.Path, in[0], in[1])}
	case Loss:
		return []*node{f.loss(in[0])}
	case Balance:
		return []*node{f.balance(m, in)}
	}
	return []*node{f.glue(m, in)}
}

// fail notes the first error.
func (f *formula) fail(format string, values ...any) {
	if f.wrong == nil {
		f.wrong = fmt.Errorf(format, values...)
	}
}

// tokens returns the selected rows.
func (f *formula) tokens() []int {
	if f.rows != nil {
		return f.rows
	}
	return span(0, f.call.Batch.Batch*f.call.Batch.Seq)
}

// Rows returns some rows of a tensor of all tokens; nil stands for all. Of a tensor of entries,
// [batch, entries, width], it returns the sequences of these tokens. Any other tensor stays.
func (x Tensor) Rows(rows []int, tokens int) Tensor {
	if rows == nil || len(x.Dims) == 0 {
		return x
	}
	if n := x.Dims[0]; n != tokens && n > 1 && len(x.Dims) > 2 && tokens%n == 0 {
		var sequences []int
		for _, r := range rows {
			sequences = append(sequences, r/(tokens/n))
		}
		return x.Rows(slices.Compact(sequences), n)
	} else if n != tokens {
		return x
	}
	width := len(x.Data) / tokens
	some := Tensor{Dims: slices.Clone(x.Dims), Data: make([]float64, 0, len(rows)*width)}
	some.Dims[0] = len(rows)
	for _, r := range rows {
		some.Data = append(some.Data, x.Data[r*width:(r+1)*width]...)
	}
	return some
}

// input returns the selected rows of an input, in the format of its port.
func (f *formula) input(p Port, number int) *node {
	tokens, width := f.call.Batch.Batch*f.call.Batch.Seq, 1
	if f.module.ofEntries(p) {
		return f.entryInput(p, number)
	}
	if widths := f.module.widths; widths != nil {
		width = widths[min(number, len(widths)-1)]
	}
	x, ok := f.call.Given(p.Label())
	n := len(x.Data) / tokens
	if !ok || n == 0 || n*tokens != len(x.Data) || n%width != 0 || n > width && f.module.Kind != Norm && width > 1 {
		f.fail("%s has %d elements: expected %d for each of %d tokens", p.Name, len(x.Data), width, tokens)
		return nil
	}
	x.Dims = []int{tokens, n}
	x = x.Rows(f.rows, tokens)
	y := &node{rows: x.Dims[0], cols: n, data: x.Data}
	f.store(y, p.Name, uint64(number))
	return y
}

// entryInput returns an input with a row for each entry of the selected sequences.
func (f *formula) entryInput(p Port, number int) *node {
	x, ok := f.call.Given(p.Label())
	width := f.module.widths[min(number, len(f.module.widths)-1)]
	x = x.Rows(f.rows, f.call.Batch.Batch*f.call.Batch.Seq)
	if !ok || len(x.Data)%width != 0 {
		f.fail("%s has %d elements: expected %d for each entry", p.Name, len(x.Data), width)
		return nil
	}
	y := &node{rows: len(x.Data) / width, cols: width, data: x.Data}
	f.store(y, p.Name, uint64(number))
	return y
}

// choices returns the selected rows of a replayed choice, integers below most, or nil.
func (f *formula) choices(name string, most int) (all []int) {
	x, ok := f.call.Given(name)
	if k := f.TopK; ok && len(x.Data) == f.call.Batch.Batch*f.call.Batch.Seq*k {
		for _, r := range f.tokens() {
			for _, v := range x.Data[r*k : (r+1)*k] {
				if v < 0 || int(v) >= most {
					f.fail("%s holds %g: expected 0 to %d", name, v, most-1)
					return nil
				}
				all = append(all, int(v))
			}
		}
	} else if ok {
		f.fail("%s has %d elements: expected %d for each token", name, len(x.Data), k)
	}
	return all
}

// note keeps what a router computes besides its outputs.
func (f *formula) note(name string, values []float64, width int) {
	f.results[name] = Tensor{Dims: []int{len(values) / max(width, 1), width}, Data: values}
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
	if !format.Holds(n.data) {
		format = FP32
	}
	n.dtype, n.store = format, format
}

// param returns a parameter as [out, in], or [1, n] if it is a vector. It returns nil for a bias
// that the model does not have.
func (f *formula) param(name string) *node {
	if f.Tied && name == "lm_head.weight" {
		name = "model.embed_tokens.weight"
	}
	if f.Streams > 0 && strings.HasSuffix(name, ".head.weight") { // of a layer for further tokens
		name = "lm_head.weight"
	}
	if n, ok := f.weights[name]; ok {
		return n
	}
	if f.Config.params[name] == nil {
		return nil
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
	n.fixed = strings.HasSuffix(name, "e_score_correction_bias") || strings.HasSuffix(name, "tid2eid")
	if f.rounding.Jitter == 0 {
		f.store(n, name, 0)
	}
	f.weights[name] = n
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

// gradient returns that of a node: zero if none arrived.
func gradient(n *node) Tensor {
	if n.grad == nil {
		n.grad = make([]float64, n.rows*n.cols)
	}
	return Tensor{Dims: []int{n.rows, n.cols}, Data: n.grad}
}
