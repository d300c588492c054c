package moe

import (
	"slices"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

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

	together  *host    // the ranks that compute the gradients together: host or, of experts with replicas on other hosts, all replicas
	host      *host    // of a shared group, or of what the ranks of a host share of a sharded one
	sharded   *sharded // this rank's shard; nil if the group is not sharded over hosts
	weights   []*weight
	quantized []*linear
	mine      []*linear  // of these, those that this rank quantizes
	sums      []sliceSum // one per part that is divided by itself
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
	for t := range g.passTrees {
		t.restart()
	}
	if g.sharded == nil && g.host.first() {
		g.Grad.Slice(g.ParamLen(), g.Grad.Len()).Zero()
	}
}

// passTrees yields the sums over passes of the group.
func (g *Group) passTrees(yield func(*sumTree) bool) {
	for _, w := range g.weights {
		if !yield(&w.passes) {
			return
		}
	}
	for i := range g.sums {
		if !yield(&g.sums[i].passes) {
			return
		}
	}
	for i := range g.sharded.all() {
		if !yield(&g.sharded.units[i].passes) {
			return
		}
	}
}

// PassBytes returns the bytes of sums over passes that this rank holds apart from Grad.
func (g *Group) PassBytes() (n int) {
	for t := range g.passTrees {
		for _, sum := range t.copies() {
			n += len(sum.Bytes())
		}
	}
	return n
}

// completeGrad zeroes the gradients that no pass has stored since ZeroGrad, because nothing
// depended on them.
func (g *Group) completeGrad(p phase) {
	if g.sharded != nil {
		return // each pass completes its own
	}
	for _, w := range g.weights {
		w.complete(p)
	}
}

// complete zeroes the gradient if no pass has stored one.
func (w *weight) complete(p phase) {
	if w.passes.open == 0 {
		w.addGrad(p)
		p.pushGrad(w)
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

// Quantized reports whether passes read weights of the group in a quantized form.
func (g *Group) Quantized() bool { return len(g.quantized) > 0 }

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

// OwnWeights is Weights or, of a shared group, this rank's share of them.
func (g *Group) OwnWeights(yield func(tensor.Tensor) bool) {
	rank, ranks := 0, 1
	if g.Shared {
		rank, ranks = g.host.comm.Rank(), g.host.comm.Size()
	}
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
