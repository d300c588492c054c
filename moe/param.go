package moe

import (
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/profile"
)

// Param is one parameter tensor under its checkpoint name.
type Param struct {
	Name string
	Dims []int
	// weights that the forward pass reads, in the group's working type
	Work tensor.Tensor
	// FP32 gradient; the zero Tensor in a model for inference
	Grad  tensor.Tensor
	Init  Init
	Class Class
	Heads *HeadRows // of a projection that QK-clip scales
}

// Len returns the number of elements.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Dims {
		n *= d
	}
	return n
}

// Group is a set of parameters in one buffer of working weights and one of gradients. The optimizer
// and the collectives see these as two flat vectors.
type Group struct {
	Name   string
	Params []*Param
	// Ranks has the ranks with these parameters: all ranks, or those with replicas of this rank's
	// experts. Each holds all working weights and adds the gradients of its own tokens. nil: this
	// rank alone has the parameters, and its gradients are complete.
	Ranks *collective.Comm
	// Experts marks the routed experts. Which ones a rank has depends on the number of ranks.
	Experts bool
	// Shared says that the ranks of a host hold the group once, weights, quantized weights and
	// gradients: see Host. Its gradients are those of all their tokens. It must not be written
	// while another rank may use it.
	Shared bool
	// Across has the ranks with the same place on each host, if Ranks are on several hosts and
	// share or shard the group. Together they sum a part of the gradients, and publish its weights.
	Across *collective.Comm
	// [Len] FP32 or BF16, zeros after the last parameter; see UpdateWork
	Work tensor.Tensor
	// [Len] FP32; the zero Tensor in a model for inference
	Grad tensor.Tensor

	host      *host    // of a shared group, or of what the ranks of a host share of a sharded one
	sharded   *sharded // over hosts; nil: this rank's flat vectors are whole
	weights   []*weight
	quantized []*linear
	mine      []*linear  // of these, those that this rank quantizes
	sums      []passSums // one per part that is divided by itself
	zeroed    int        // calls of ZeroGrad
	scores    []float32  // the largest of each head: see HeadRows
}

// Held returns the ranges of the flat vectors that Work and Grad have, one after the other, if the
// group is sharded over hosts: Params have no memory then. nil: Work and Grad are whole.
func (g *Group) Held() [][2]int {
	if g.sharded == nil {
		return nil
	}
	return g.sharded.held()
}

// Host has the ranks that share this rank's copy of the group; nil: it is not shared.
func (g *Group) Host() *collective.Comm {
	if g.host == nil {
		return nil
	}
	return g.host.comm
}

// ZeroGrad resets the gradients, like PyTorch's zero_grad(set_to_none=True): the next [Model.Train]
// stores its own, and later ones add to them. Until then Grad keeps its content, except for zeros
// after the last parameter.
func (g *Group) ZeroGrad() {
	g.zeroed++
	for _, w := range g.weights {
		w.stale, w.sealed, w.broken = true, seal{}, false
	}
	for i := range g.sums {
		g.sums[i].reset()
	}
	switch {
	case g.sharded != nil:
		for i := range g.sharded.units {
			g.sharded.units[i].stale = true
		}
	case g.host.first():
		g.Grad.Slice(g.ParamLen(), g.Grad.Len()).Zero()
	}
}

// completeGrad zeroes the gradients that no pass has stored since ZeroGrad, because nothing
// depended on them.
func (g *Group) completeGrad(ex *tensor.Exec) {
	if g.sharded != nil {
		return // each pass completes its own
	}
	for _, w := range g.weights {
		if w.stale {
			w.sum(ex)
		}
	}
}

// Refresh updates what is derived from Work. It must be called after Work changes: once per step.
// It is collective if the group is shared, and each weight is then quantized by one rank.
func (g *Group) Refresh(ex *tensor.Exec) error {
	if g.sharded != nil {
		g.sharded.gathered = -1
		return nil
	}
	return g.quantize(ex, g.mine, g.quantized)
}

// quantize quantizes some weights of the group, each on one of the ranks that share it: mine are
// those of this rank.
func (g *Group) quantize(ex *tensor.Exec, mine, all []*linear) error {
	for _, l := range mine {
		l.mx.refresh(ex, l.W)
	}
	if g.host == nil || len(all) == 0 {
		return nil
	}
	if err := g.meet(ex); err != nil {
		return err
	}
	for _, l := range all {
		if !slices.Contains(mine, l) {
			l.mx.showWeight(l.W, true)
		}
	}
	return nil
}

// meet returns when all ranks of this host that share the group have called it.
func (g *Group) meet(ex *tensor.Exec) error {
	if g.host == nil {
		return nil
	}
	defer ex.Enter(ex.Enter(profile.Collectives))
	return g.host.comm.Barrier()
}

// UpdateWork calls update for disjoint ranges [lo, hi) of Work. part has hi-lo elements and
// receives the new weights. Calls may run concurrently, each with its own Exec. UpdateWork also
// updates what is derived from Work, as Refresh does, but while the new weights are still in the
// caches. Weights that are only used quantized are not written to Work, which keeps its old content
// there. The model must be a model for training.
func (g *Group) UpdateWork(ex *tensor.Exec, update func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)) {
	done := 0
	within := func(lo, hi int) { update(ex, lo, hi, g.Work.Slice(lo, hi)) }
	for _, l := range g.quantized {
		within(done, l.at)
		cols := l.W.Dim(-1)
		l.mx.updateWork(ex, l.W, func(ex *tensor.Exec, lo, hi int, part tensor.Tensor) {
			update(ex, l.at+lo*cols, l.at+hi*cols, part.Reshape((hi-lo)*cols))
		})
		done = l.at + l.W.Len()
	}
	within(done, g.Len())
}

// UpdatesInMultiples reports whether all ranges of UpdateWork begin at multiples of n elements.
func (g *Group) UpdatesInMultiples(n int) bool {
	for _, l := range g.quantized {
		rows, cols := l.W.Dim(-2), l.W.Dim(-1)
		for _, begin := range []int{l.at, l.W.Len(), rows * cols, format.MXBlock * cols} {
			if begin%n != 0 {
				return false
			}
		}
	}
	return true
}

// Weights yields everything that training reads of this group, in a fixed order: the quantized
// forms of quantized weights, and the parts of Work that are not quantized.
func (g *Group) Weights(yield func(tensor.Tensor) bool) {
	if g.sharded != nil {
		yield(g.Work) // the rest is gathered when it is used
		return
	}
	done := 0
	for _, l := range g.quantized {
		if done < l.at && !yield(g.Work.Slice(done, l.at)) {
			return
		}
		for _, t := range l.mx.weights(l.W) {
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

// OwnWeights is Weights of a group that is not shared, and nothing of one that is.
func (g *Group) OwnWeights(yield func(tensor.Tensor) bool) {
	if !g.Shared {
		g.Weights(yield)
	}
}

// SharedWeights yields this rank's share of Weights of a shared group.
func (g *Group) SharedWeights(yield func(tensor.Tensor) bool) {
	if !g.Shared {
		return
	}
	rank, ranks := g.host.comm.Rank(), g.host.comm.Size()
	for t := range g.Weights {
		n := t.Dim(0) // rows, or elements
		if lo, hi := n*rank/ranks, n*(rank+1)/ranks; lo < hi && !yield(t.Slice(lo, hi)) {
			return
		}
	}
}

// groupMultiple is the multiple that group lengths are rounded up to. Any power-of-two number of
// ranks up to it gets equal and aligned shards.
const groupMultiple = 4096

// Len returns the number of elements of Work and Grad, including padding.
func (g *Group) Len() int { return g.Work.Len() }

// ParamLen returns the number of elements of all parameters. The rest of the flat vectors is
// padding.
func (g *Group) ParamLen() (n int) {
	for _, p := range g.Params {
		n += p.Len()
	}
	return n
}

// groupNames are the names of a model's groups. A stage may lack some.
var groupNames = [...]string{"norm", "dense", "expert"}

// builder collects the parameters of a model and then allocates their memory.
type builder struct {
	precision Precision
	mesh      Mesh
	layers    int              // of the model
	inference bool             // there are no gradients
	memory    memory.Allocator // of weights and gradients; nil: the default
	operands  *operands        // of the model being built
	norms     *Group           // FP32 in every precision: norms and routers
	dense     *Group           // replicated matrices
	experts   *Group           // this rank's routed experts
	pending   []binding
	units     []int // where the units of the dense group begin: see sharded
}

// binding is a weight that waits for memory: elements [at, at+len(dims)) of a group.
type binding struct {
	w     *weight
	group *Group
	at    int
	dims  []int
}

func newBuilder(p Precision, m Mesh) *builder {
	return &builder{
		precision: p,
		mesh:      m,
		norms:     &Group{Name: groupNames[0], Ranks: m.World},
		dense:     &Group{Name: groupNames[1], Ranks: m.World},
		experts:   &Group{Name: groupNames[2], Ranks: m.Replicas, Experts: true},
	}
}

// share makes the ranks of a host hold the matrices once that several of them have.
func (b *builder) share() {
	b.dense.host = newHost(b.mesh.World, b.mesh.Host)
	b.experts.host = newHost(b.mesh.Replicas, nil)
	b.dense.Shared, b.experts.Shared = b.dense.host != nil && !b.shards(), b.experts.host != nil
	if b.dense.Shared || b.shards() {
		b.dense.Across = b.mesh.Across
	}
}

// shards reports whether the dense group is sharded over hosts.
func (b *builder) shards() bool { return b.mesh.FSDP && b.mesh.Across != nil && !b.inference }

// beginUnit says that the next matrices are a unit.
func (b *builder) beginUnit() { b.units = append(b.units, b.dense.ParamLen()) }

// add appends adjacent parameters to a group and binds w to all of them, with shape dims.
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
	b.add(b.dense, w, []int{out, in}, &Param{Name: name + ".weight", Dims: []int{out, in}, Init: init, Class: Plain})
}

// linear appends the [out, in] parameter of a linear layer, with the recipe of linear layers.
func (b *builder) linear(l *linear, name string, out, in int, init Init) {
	b.matrix(&l.weight, name, out, in, init)
	p := b.lastMatrix()
	p.Class = Linear
	b.quantize(b.dense, l, Linear, p)
}

// lastMatrix returns the parameter that matrix has appended last.
func (b *builder) lastMatrix() *Param { return b.dense.Params[len(b.dense.Params)-1] }

// grouped appends the parameters of a grouped linear layer, one per group of rows. Those of routed
// experts have a recipe of their own.
func (b *builder) grouped(g *Group, l *linear, dims []int, params ...*Param) {
	b.add(g, &l.weight, dims, params...)
	class := Linear
	if g == b.experts {
		class = Expert
		l.unit = dims[1] // replicas divide the gradient expert by expert
	}
	for _, p := range params {
		p.Class = class
	}
	b.quantize(g, l, class, params[0])
	if l.mx != nil && class == Expert {
		l.mx.firstExpert = b.mesh.EP.Rank() * dims[0]
	}
}

// quantize sets the recipe of a layer, if it has one. p is the layer's first parameter.
func (b *builder) quantize(g *Group, l *linear, class Class, p *Param) {
	id := identify(p, g.Experts && (g.Ranks == nil || g.Ranks.Rank() == 0))
	if how := b.precision.of(id.part(), id.layer, b.layers); how != nil {
		l.mx = &mxLinear{Recipe: *how, inference: b.inference, identity: id, operands: b.operands, peers: b.mesh.Operands}
		if class == Expert {
			l.mx.peers = b.mesh.Replicas
		}
		g.quantized = append(g.quantized, l)
	}
}

// norm appends one RMSNorm weight of n ones.
func (b *builder) norm(w *weight, name string, n int) {
	b.add(b.norms, w, []int{n}, &Param{Name: name + ".weight", Dims: []int{n}, Init: Init{Kind: Ones}})
}

// groups allocates the memory of all groups and binds all weights. It is collective if a group is
// shared.
func (b *builder) groups() ([]*Group, error) {
	var groups []*Group
	for _, g := range []*Group{b.norms, b.dense, b.experts} {
		if len(g.Params) == 0 {
			continue
		}
		work := b.precision.DType
		if g == b.norms {
			work = tensor.FP32
		}
		if err := b.allocate(g, work); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	for _, p := range b.pending {
		end := p.at + product(p.dims)
		p.group.weights = append(p.group.weights, p.w)
		p.w.at = p.at
		if s := p.group.sharded; s != nil {
			s.bind(p.w, p.dims)
		} else {
			p.w.W = p.group.Work.Slice(p.at, end).Reshape(p.dims...)
		}
		if !b.inference {
			if p.group.sharded == nil {
				p.w.Grad = p.group.Grad.Slice(p.at, end).Reshape(p.dims...)
			}
			p.w.stale = true
			p.w.host = p.group.host
			p.w.rows = p.w.host.divide(p.w.Grad.Mat().Rows, p.w.unit)
		}
	}
	for _, g := range groups {
		if err := g.allocateQuantized(b.memory); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// allocate allocates the memory of a group. It is collective if the group is shared or sharded.
func (b *builder) allocate(g *Group, dtype tensor.DType) (err error) {
	if g != b.dense || !b.shards() {
		return g.allocate(b.memory, dtype, !b.inference)
	}
	if g.sharded, err = newSharded(g, b.units, b.mesh.Cut); err != nil {
		return err
	}
	return g.sharded.allocate(b.memory, dtype)
}

func (g *Group) allocate(from memory.Allocator, dtype tensor.DType, gradients bool) error {
	n := 0
	for _, p := range g.Params {
		n += p.Len()
	}
	padded := (n + groupMultiple - 1) / groupMultiple * groupMultiple
	work, err := g.host.allocate(from, padded*dtype.Size())
	if err != nil {
		return err
	}
	g.Work = tensor.FromBytes(work, dtype, padded)
	if gradients {
		grad, err := g.host.allocate(from, padded*tensor.FP32.Size())
		if err != nil {
			return err
		}
		g.Grad = tensor.FromBytes(grad, tensor.FP32, padded)
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
	return nil
}

// allocateQuantized allocates memory for the quantized forms of weights, and divides the work of
// quantizing them among the ranks that share them.
func (g *Group) allocateQuantized(from memory.Allocator) error {
	if g.sharded != nil {
		return g.sharded.allocateQuantized(from)
	}
	var to *tensor.Arena // nil: each in memory of its own
	shared := sharedMemory{host: g.host, from: from}
	if g.Shared {
		to = &tensor.Arena{Allocator: &shared, First: quantizedBytes(g.quantized)}
	}
	for _, l := range g.quantized {
		l.mx.allocate(to, l.W)
	}
	g.mine = g.host.share(g.quantized)
	return shared.err
}

// quantizedBytes returns the bytes in an arena of the quantized forms of some weights.
func quantizedBytes(layers []*linear) (sum int) {
	for _, l := range layers {
		sum += int(float64(l.W.Len())*l.mx.WeightBytes()) + quantizedParts*tensor.Alignment
	}
	return sum
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
