package moe

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/tensor"
)

// Param is one parameter tensor under its checkpoint name.
type Param struct {
	Name string
	Dims []int
	Work tensor.Tensor // weights that the forward pass reads, in the group's working type
	Grad tensor.Tensor // FP32 gradient; the zero Tensor in a model that is not trained
	Init Init
}

// Len returns the number of elements.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Dims {
		n *= d
	}
	return n
}

// Group is a set of parameters that lie side by side in one buffer of working weights and one
// of gradients, so that the optimizer and the collectives see two flat vectors.
type Group struct {
	Name   string
	Params []*Param
	// Local marks expert weights, which one rank alone holds. Other groups are replicated:
	// every rank holds all working weights and adds its own tokens' gradients.
	Local bool
	Work  tensor.Tensor // [Len] FP32 or BF16, zeros behind the last parameter; see Renew
	Grad  tensor.Tensor // [Len] FP32; the zero Tensor in a model that is not trained

	weights   []*weight
	quantized []*linear
	zeroed    int // calls of ZeroGrad
}

// ZeroGrad makes the gradients those of no pass, as PyTorch's zero_grad(set_to_none=True) does: the
// next [Model.Train] stores its own, those after it add. Until then Grad holds what it held, but
// for zeros behind the last parameter.
func (g *Group) ZeroGrad() {
	g.zeroed++
	for _, w := range g.weights {
		w.stale = true
	}
	g.Grad.Slice(g.ParamLen(), g.Grad.Len()).Zero()
}

// completeGrad zeroes what no pass has stored since ZeroGrad: nothing depended on it.
func (g *Group) completeGrad(ex *tensor.Exec) {
	for _, w := range g.weights {
		w.sum(ex)
	}
}

// Refresh brings what is derived from Work up to date. Whoever changes Work calls it: once a step.
func (g *Group) Refresh(ex *tensor.Exec) {
	for _, l := range g.quantized {
		l.mx.refresh(ex, l.W)
	}
}

// Renew lets update make elements [lo, hi) of Work in part, which has as many, several runs of them
// perhaps at once, each on a thread that has ex. It leaves what is derived from Work as Refresh
// does, but makes it while caches hold what was made. What is quantized is then not in Work, which
// nobody reads it from: that still holds what it held. The model has to be one that is trained.
func (g *Group) Renew(ex *tensor.Exec, update func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)) {
	done := 0
	within := func(lo, hi int) { update(ex, lo, hi, g.Work.Slice(lo, hi)) }
	for _, l := range g.quantized {
		within(done, l.at)
		cols := l.W.Dim(-1)
		l.mx.renew(ex, l.W, func(ex *tensor.Exec, lo, hi int, part tensor.Tensor) {
			update(ex, l.at+lo*cols, l.at+hi*cols, part.Reshape((hi-lo)*cols))
		})
		done = l.at + l.W.Len()
	}
	within(done, g.Len())
}

// Weights calls yield for all that a model in training reads of this group, in a fixed order: what
// is derived from quantized weights, and of Work what is not quantized.
func (g *Group) Weights(yield func(tensor.Tensor) bool) {
	done := 0
	for _, l := range g.quantized {
		for _, t := range append([]tensor.Tensor{g.Work.Slice(done, l.at)}, l.mx.weights(l.W)...) {
			if t.Valid() && t.Len() > 0 && !yield(t) {
				return
			}
		}
		done = l.at + l.W.Len()
	}
	if done < g.Len() {
		yield(g.Work.Slice(done, g.Len()))
	}
}

// groupMultiple is what group lengths are rounded up to, so that any power-of-two number of
// ranks up to it gets equal and aligned shards.
const groupMultiple = 4096

// Len returns the number of elements of the flat vectors, padding included.
func (g *Group) Len() int { return g.Work.Len() }

// ParamLen returns the number of elements of all parameters: what is behind them in the flat
// vectors is padding.
func (g *Group) ParamLen() (n int) {
	for _, p := range g.Params {
		n += p.Len()
	}
	return n
}

// builder collects the parameters of a model and then lays them out in memory.
type builder struct {
	precision Precision
	layers    int              // of the model
	inference bool             // nothing has gradients
	memory    memory.Allocator // of weights and gradients; nil: any
	operands  *operands        // of the model that is built
	norms     *Group           // FP32 in every precision: norms and routers
	dense     *Group           // replicated matrices
	experts   *Group           // this rank's routed experts
	pending   []binding
}

// binding is a weight that waits for memory: elements [at, at+len(dims)) of a group.
type binding struct {
	w     *weight
	group *Group
	at    int
	dims  []int
}

func newBuilder(p Precision) *builder {
	return &builder{
		precision: p,
		norms:     &Group{Name: "norm"},
		dense:     &Group{Name: "dense"},
		experts:   &Group{Name: "expert", Local: true},
	}
}

// add appends neighbouring parameters to a group and binds w to all of them, seen as dims.
func (b *builder) add(g *Group, w *weight, dims []int, params ...*Param) {
	at := 0
	for _, p := range g.Params {
		at += p.Len()
	}
	n := 0
	for _, p := range params {
		n += p.Len()
	}
	g.Params = append(g.Params, params...)
	b.pending = append(b.pending, binding{w, g, at, dims})
	if want := product(dims); n != want {
		panic(fmt.Sprintf("moe: %s: %d parameters bound to a weight of %d", params[0].Name, n, want))
	}
}

// matrix appends one [out, in] parameter to the replicated matrices.
func (b *builder) matrix(w *weight, name string, out, in int, init Init) {
	b.add(b.dense, w, []int{out, in}, &Param{Name: name + ".weight", Dims: []int{out, in}, Init: init})
}

// linear appends the [out, in] parameter of a linear layer, in the precision of linear layers.
func (b *builder) linear(l *linear, name string, out, in int, init Init) {
	b.matrix(&l.weight, name, out, in, init)
	b.quantize(b.dense, l, Linear, b.dense.Params[len(b.dense.Params)-1])
}

// grouped appends the parameters of one linear layer a group of rows; those of routed experts
// have a precision of their own.
func (b *builder) grouped(g *Group, l *linear, dims []int, params ...*Param) {
	b.add(g, &l.weight, dims, params...)
	class := Linear
	if g == b.experts {
		class = Expert
	}
	b.quantize(g, l, class, params[0])
}

// quantize gives a layer whose first parameter is p its recipe, if it has one.
func (b *builder) quantize(g *Group, l *linear, class Class, p *Param) {
	id := identify(p, g.Local)
	if how := b.precision.of(class, id.layer, b.layers); how != nil {
		l.mx = &mxLinear{Recipe: *how, inference: b.inference, identity: id, operands: b.operands}
		g.quantized = append(g.quantized, l)
	}
}

// norm appends one RMSNorm weight of n ones.
func (b *builder) norm(w *weight, name string, n int) {
	b.add(b.norms, w, []int{n}, &Param{Name: name + ".weight", Dims: []int{n}, Init: Init{Kind: Ones}})
}

// groups gives every group its memory and binds all weights.
func (b *builder) groups() []*Group {
	var groups []*Group
	for _, g := range []*Group{b.norms, b.dense, b.experts} {
		if len(g.Params) == 0 {
			continue
		}
		work := b.precision.DType
		if g == b.norms {
			work = tensor.FP32
		}
		g.allocate(b.memory, work, !b.inference)
		groups = append(groups, g)
	}
	for _, p := range b.pending {
		end := p.at + product(p.dims)
		p.group.weights = append(p.group.weights, p.w)
		p.w.at = p.at
		p.w.W = p.group.Work.Slice(p.at, end).Reshape(p.dims...)
		if !b.inference {
			p.w.Grad, p.w.stale = p.group.Grad.Slice(p.at, end).Reshape(p.dims...), true
		}
	}
	return groups
}

func (g *Group) allocate(from memory.Allocator, dtype tensor.DType, gradients bool) {
	n := 0
	for _, p := range g.Params {
		n += p.Len()
	}
	padded := (n + groupMultiple - 1) / groupMultiple * groupMultiple
	g.Work = tensor.NewIn(from, dtype, padded)
	if gradients {
		g.Grad = tensor.NewIn(from, tensor.FP32, padded)
	}
	at := 0
	for _, p := range g.Params {
		end := at + p.Len()
		p.Work = g.Work.Slice(at, end).Reshape(p.Dims...)
		if gradients {
			p.Grad = g.Grad.Slice(at, end).Reshape(p.Dims...)
		}
		at = end
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
