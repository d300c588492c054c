package moe

// How the parameters of a model are collected, and their memory is allocated.

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/tensor"
)

// groupNames are the names of a model's groups. A stage may lack some.
var groupNames = [...]string{"norm", "dense", "expert"}

// builder collects the parameters of a model and then allocates their memory.
type builder struct {
	precision Precision
	mesh      Mesh
	layers    int              // of the model, without those that predict further ahead
	layer     int              // whose parameters are added
	inference bool             // there are no gradients
	memory    memory.Allocator // of weights and gradients; nil: the default
	dry       *tensor.Exec     // of a dry run; nil: weights have memory
	times     map[int]int      // that a layer of a dry run counts; nil: each is built, and counts once
	operands  *operands        // of the model being built
	sums      *stepSums        // of the model being built
	norms     *Group           // FP32 in every precision: norms and routers
	dense     *Group           // replicated matrices
	experts   *Group           // this rank's routed experts
	lengths   map[*Group]int   // of the parameters so far
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
		lengths:   map[*Group]int{},
		norms:     &Group{Name: groupNames[0], Ranks: m.World},
		dense:     &Group{Name: groupNames[1], Ranks: m.World},
		experts:   &Group{Name: groupNames[2], Ranks: m.Replicas, Experts: true},
	}
}

// share makes the ranks of a host hold the matrices once that several of them have.
func (b *builder) share() {
	b.dense.host = newHost(b.mesh.World, b.mesh.Host)
	if b.mesh.SequenceHost != nil {
		b.dense.host = &host{peers: newPeers(b.mesh.Host, b.mesh.Host)}
	}
	if b.experts.Across = b.mesh.ReplicasAcross; b.experts.Across != nil || b.mesh.ReplicasHost == nil {
		b.experts.host = newHost(b.mesh.Replicas, b.mesh.ReplicasHost)
	}
	b.dense.Shared = b.dense.host != nil && !b.shards()
	b.experts.Shared = b.experts.host != nil
	if b.dense.Shared || b.shards() {
		b.dense.Across = b.mesh.Across
	}
	b.dense.together, b.experts.together = b.dense.host, b.experts.host
	if r := b.mesh.Replicas; r != nil && len(r.Hosts()) > 1 {
		b.experts.together = newReplicas(b.mesh, b.precision.continuesSums())
	}
}

// shards reports whether the dense group is sharded over hosts.
func (b *builder) shards() bool { return b.mesh.FSDP && b.mesh.Across != nil && !b.inference }

// wholeMatrices reports whether the optimizer needs whole matrices of a group on one rank.
func (b *builder) wholeMatrices(g *Group) bool {
	return b.mesh.Cut != nil && b.mesh.Cut(g.Params[:1], 1) != nil
}

// beginUnit says that the next matrices are a unit.
func (b *builder) beginUnit() { b.units = append(b.units, b.dense.ParamLen()) }

// add appends adjacent parameters of a part to a group and binds w to all of them, with shape dims.
func (b *builder) add(g *Group, w *weight, part Part, dims []int, params ...*Param) {
	at, n := b.lengths[g], 0
	for _, p := range params {
		p.Part, p.Class = PartKey{part, b.layer >= b.layers}, part.Class()
		n += p.Len()
	}
	g.Params, b.lengths[g] = append(g.Params, params...), at+n
	b.pending = append(b.pending, binding{w, g, at, dims})
}

// matrix appends one [out, in] parameter to the replicated matrices.
func (b *builder) matrix(w *weight, part Part, name string, out, in int, init Init) *Param {
	p := &Param{Name: name + ".weight", Dims: []int{out, in}, Init: init}
	b.add(b.dense, w, part, p.Dims, p)
	return p
}

// linear appends the [out, in] parameter of a linear layer, with the recipe of its part.
func (b *builder) linear(l *linear, part Part, name string, out, in int, init Init) *Param {
	p := b.matrix(&l.weight, part, name, out, in, init)
	b.quantize(b.dense, l, p)
	return p
}

// rows appends one parameter, whose rows are those of several linear layers of [out, in].
func (b *builder) rows(layers []linear, part Part, name string, out, in int, init Init) {
	at := b.lengths[b.dense]
	p := &Param{
		Name:     name + ".weight",
		Dims:     []int{len(layers) * out, in},
		Init:     init,
		Matrices: len(layers),
	}
	b.add(b.dense, &layers[0].weight, part, []int{out, in}, p)
	for i := range layers {
		if i > 0 {
			b.pending = append(b.pending, binding{&layers[i].weight, b.dense, at + i*out*in, []int{out, in}})
		}
		b.quantize(b.dense, &layers[i], p)
		if mx := layers[i].mx; mx != nil {
			mx.identity.linear = fmt.Sprintf("%s.%d", mx.identity.linear, i)
		}
	}
}

// grouped appends the parameters of a grouped linear layer, one per group of rows.
func (b *builder) grouped(g *Group, l *linear, part Part, dims []int, params ...*Param) {
	b.add(g, &l.weight, part, dims, params...)
	b.quantize(g, l, params[0])
	if l.mx != nil && g == b.experts {
		l.mx.firstExpert = b.mesh.EP.Rank() * dims[0]
	}
}

// quantize sets the recipe of a layer, if it has one. p is the layer's first parameter.
func (b *builder) quantize(g *Group, l *linear, p *Param) {
	l.part, l.sum = p.Part.Part, b.precision.Sum
	if g == b.dense && g.together != nil && b.mesh.TP != nil {
		l.columns = dividedColumns{}
	}
	how := b.precision.of(l.part, b.layer, b.layers)
	if how == nil {
		return
	}
	id := identify(p, g.Experts && (g.Ranks == nil || g.Ranks.Rank() == 0))
	l.mx = &mxLinear{
		Recipe:    *how,
		inference: b.inference,
		identity:  id,
		operands:  b.operands,
		peers:     b.mesh.Operands,
	}
	if g.Experts {
		l.mx.peers = b.mesh.Replicas
	}
	g.quantized = append(g.quantized, l)
}

// biasParam describes the bias of a projection of n outputs.
func biasParam(name string, n int) *Param { return &Param{Name: name + ".bias", Dims: []int{n}} }

// bias appends the bias of a linear layer, of adjacent parameters.
func (b *builder) bias(l *linear, params ...*Param) {
	l.bias = &weight{}
	n := 0
	for _, p := range params {
		n += p.Len()
	}
	b.add(b.norms, l.bias, Norms, []int{n, 1}, params...)
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
			if p.w.chain = p.group.Experts; p.w.chain {
				p.w.unit = p.group.together.expertUnit(p.dims[0], p.dims[1], b.wholeMatrices(p.group))
			}
			p.group.together.divideRows(p.w)
			p.w.owner = b.sums.ownerOf(p.group)
			p.w.passes = newSumTree(p.w.own())
		}
	}
	for _, g := range groups {
		if err := g.allocateQuantized(b.memory, b.dry); err != nil {
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
	n := g.ParamLen()
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
	if _, dry := from.(tensor.DryMemory); dry {
		return nil // a dry run reads no parameters
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
func (g *Group) allocateQuantized(from memory.Allocator, dry *tensor.Exec) error {
	if g.sharded != nil {
		return g.sharded.allocateQuantized(from)
	}
	var to *tensor.Arena // nil: each in memory of its own
	shared := sharedMemory{host: g.host, from: from}
	if g.Shared {
		to = &tensor.Arena{Allocator: &shared, First: quantizedBytes(g.quantized)}
	}
	if dry != nil {
		to = dry.NewArena(0)
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

// timesOf returns how many layers the one with this number stands for; 0: it is not built.
func (b *builder) timesOf(layer int) int {
	if n, ok := b.times[layer]; ok || b.times == nil {
		return max(n, 1)
	}
	return 0
}
