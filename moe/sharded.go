package moe

// Dense weights that are sharded over hosts (FSDP). Of each unit of the model, such as a block, a
// rank holds a slice: working weights and FP32 gradients. A host gathers a unit into its one buffer
// before it is used, and the next unit overwrites it. The gradients of a unit are computed in
// another buffer, from the tokens of this host. They are then summed over the hosts, and each rank
// adds its slice to those of earlier passes. That is the order of one rank.
//
// The ranks of a host share both buffers. Ranks with the same place on each host gather and sum
// adjacent slices, as they do for a group that each host holds once: see Group.Across.

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// ShardMultiple is the multiple in which a sharded group is divided: the number of adjacent
// squares of a parameter in a gradient norm that are summed with rounding. So the norm does not
// depend on the division.
const ShardMultiple = 256

// The first units of a model with the embedding. The head follows the blocks, except those that
// predict further ahead, which follow the head.
const (
	embeddingUnit = iota
	firstBlock
)

// sharded is this rank's end of the dense group. A nil one does nothing: the group is not sharded.
type sharded struct {
	group      *Group
	units      []unit
	work, grad tensor.Tensor // of the unit in use: of this host
	gathered   int           // the unit in work; none: -1
}

// unit is elements [lo, hi) of the flat vectors.
type unit struct {
	lo, hi    int
	weights   []*weight
	quantized []*linear
	mine      []*linear // of these, those that this rank quantizes
	sliceSum            // over ranks with this rank's place, one per host
	first     int       // where their slices begin in the unit
	place     [2]int    // this rank's slice in the group's Work and Grad
}

// newSharded divides a group into units that begin at some elements, and its ranks' slices of them
// as cut says: see [Mesh.Cut].
func newSharded(g *Group, begins []int, cut func([]*Param, int) []int) (*sharded, error) {
	s := &sharded{group: g, gathered: -1}
	for _, p := range g.Params {
		if p.Len()%ShardMultiple != 0 {
			return nil, fmt.Errorf("%s has %d elements: fsdp needs a multiple of %d: choose another dim, or train without fsdp", p.Name, p.Len(), ShardMultiple)
		}
	}
	place, hosts, at := 0, g.Across.Size(), 0
	if g.host != nil {
		place = g.host.comm.Rank()
	}
	for i, lo := range begins {
		u := unit{lo: lo, hi: g.ParamLen()}
		if i+1 < len(begins) {
			u.hi = begins[i+1]
		}
		lengths := cutUnit(g.between(lo, u.hi), g.Ranks.Size(), cut)
		u.counts = lengths[place*hosts:][:hosts]
		u.first = Division{Counts: lengths[:place*hosts]}.End()
		u.place = [2]int{at, at + u.counts[g.Across.Rank()]}
		at = u.place[1]
		s.units = append(s.units, u)
	}
	return s, nil
}

// between returns the parameters in elements [lo, hi) of the flat vectors.
func (g *Group) between(lo, hi int) (some []*Param) {
	at := 0
	for _, p := range g.Params {
		if at >= lo && at < hi {
			some = append(some, p)
		}
		at += p.Len()
	}
	return some
}

// cutUnit returns the lengths of the ranks' slices of a unit.
func cutUnit(unit []*Param, ranks int, cut func([]*Param, int) []int) []int {
	if cut != nil {
		if lengths := cut(unit, ranks); lengths != nil {
			return lengths
		}
	}
	n := 0
	for _, p := range unit {
		n += p.Len()
	}
	lengths := make([]int, ranks)
	end := func(slice int) int { return n / ShardMultiple * slice / ranks * ShardMultiple }
	for i := range lengths {
		lengths[i] = end(i+1) - end(i)
	}
	return lengths
}

// allocate allocates the rank's slices and the buffers of its host.
func (s *sharded) allocate(from memory.Allocator, dtype tensor.DType) error {
	g, most := s.group, 0
	for _, u := range s.units {
		most = max(most, u.hi-u.lo)
	}
	held := s.units[len(s.units)-1].place[1]
	g.Work, g.Grad = tensor.NewIn(from, dtype, held), tensor.NewIn(from, tensor.FP32, held)
	for i := range s.units {
		u := &s.units[i]
		u.peers, u.passes = g.Across, newSumTree(g.Grad.Slice(u.place[0], u.place[1]))
	}
	work, err := g.host.allocate(from, most*dtype.Size())
	if err != nil {
		return err
	}
	grad, err := g.host.allocate(from, most*tensor.FP32.Size())
	if err != nil {
		return err
	}
	s.work, s.grad = tensor.FromBytes(work, dtype, most), tensor.FromBytes(grad, tensor.FP32, most)
	for i := range s.units {
		u := &s.units[i]
		u.all = s.grad.Slice(u.first, u.end())
	}
	return nil
}

// bind places a weight in the buffers of its host.
func (s *sharded) bind(w *weight, dims []int) {
	for i := range s.units {
		u := &s.units[i]
		if lo := w.at - u.lo; w.at >= u.lo && w.at < u.hi {
			u.weights = append(u.weights, w)
			w.W, w.Grad = s.work.Slice(lo, lo+product(dims)).Reshape(dims...), s.grad.Slice(lo, lo+product(dims)).Reshape(dims...)
		}
	}
}

// allocateQuantized allocates one buffer for the quantized forms of any unit, and divides the work
// of quantizing each unit among the ranks of the host.
func (s *sharded) allocateQuantized(from memory.Allocator) error {
	most := 0
	for i := range s.units {
		u := &s.units[i]
		for _, l := range s.group.quantized {
			if l.at >= u.lo && l.at < u.hi {
				u.quantized = append(u.quantized, l)
			}
		}
		u.mine = s.group.host.share(u.quantized)
		most = max(most, quantizedBytes(u.quantized))
	}
	if most == 0 {
		return nil
	}
	shared := sharedMemory{host: s.group.host, from: from}
	to := &tensor.Arena{Allocator: &shared, First: most}
	for _, u := range s.units {
		begin := to.Mark()
		for _, l := range u.quantized {
			l.mx.allocate(to, l.W)
		}
		to.Release(begin) // the next unit is quantized into the same memory
	}
	return shared.err
}

// gather makes the weights of a unit those in the buffer of this host. It is collective.
func (s *sharded) gather(ex *tensor.Exec, number int) error {
	if s == nil || s.gathered == number {
		return nil
	}
	u, g := &s.units[number], s.group
	err := g.meet(ex) // slower ranks may still read the last unit
	if err == nil {
		err = s.allGather(ex, u)
	}
	if err == nil {
		err = g.meet(ex)
	}
	if err == nil && len(u.quantized) > 0 {
		err = g.quantize(ex, u.mine, u.quantized)
	}
	if s.gathered = number; err != nil {
		return fmt.Errorf("gathering dense weights: %w", err)
	}
	return nil
}

func (s *sharded) allGather(ex *tensor.Exec, u *unit) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	own, all := s.group.Work.Slice(u.place[0], u.place[1]), s.work.Slice(u.first, u.end())
	if own.DType() == tensor.BF16 {
		return collective.AllGatherV(s.group.Across, all.BF16(), own.BF16(), u.counts)
	}
	return collective.AllGatherV(s.group.Across, all.F32(), own.F32(), u.counts)
}

// end returns where the slices of ranks with this rank's place end in the unit.
func (u *unit) end() int { return Division{u.first, u.counts}.End() }

// reduce adds the gradients of a unit in this pass to the ranks' slices. It is collective.
func (s *sharded) reduce(p phase, number int) error {
	if s == nil {
		return nil
	}
	ex, u, g := p.ex, &s.units[number], s.group
	for _, w := range u.weights {
		w.complete(p)
		w.passes.restart() // the next pass stores its own
	}
	err := g.meet(ex)
	if err == nil {
		err = u.addPass(p)
	}
	if err == nil {
		err = g.meet(ex) // the next unit overwrites the buffer
	}
	if err != nil {
		return fmt.Errorf("summing dense gradients: %w", err)
	}
	return nil
}

// all returns the units; nil: the group is not sharded.
func (s *sharded) all() []unit {
	if s == nil {
		return nil
	}
	return s.units
}

// held returns the ranges of the flat vectors of which this rank holds slices, in their order.
func (s *sharded) held() (spans [][2]int) {
	for _, u := range s.units {
		lo := Division{u.lo + u.first, u.counts[:s.group.Across.Rank()]}.End()
		spans = append(spans, [2]int{lo, lo + u.place[1] - u.place[0]})
	}
	return spans
}
