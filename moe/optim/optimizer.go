// Package optim trains a moe.Model with AdamW on FP32 master weights that are sharded over all
// ranks (ZeRO-1): every rank sums and updates its own slice of the replicated parameters and
// hands the new working weights to the others. Expert weights are updated where they live.
package optim

import (
	"fmt"
	"math"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/exact"
	"spmoe/tensor/profile"
)

// AdamW holds the constants of the optimizer (arXiv:1711.05101). Weight decay applies to every parameter.
type AdamW struct {
	Beta1       float64 `toml:"beta1" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" help:"added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" help:"decoupled weight decay, on all parameters"`
	ClipNorm    float64 `toml:"clip_norm" help:"largest global gradient norm; 0: no clipping"`
}

// Validate reports the first field that cannot be.
func (c AdamW) Validate() error {
	switch {
	case !(c.Beta1 >= 0 && c.Beta1 < 1):
		return fmt.Errorf("optimizer.beta1 is %g: give 0 or more, below 1", c.Beta1)
	case !(c.Beta2 >= 0 && c.Beta2 < 1):
		return fmt.Errorf("optimizer.beta2 is %g: give 0 or more, below 1", c.Beta2)
	case !(c.Eps > 0) || math.IsInf(c.Eps, 0):
		return fmt.Errorf("optimizer.eps is %g: give a positive number", c.Eps)
	case !(c.WeightDecay >= 0) || math.IsInf(c.WeightDecay, 0):
		return fmt.Errorf("optimizer.weight_decay is %g: give 0 or more", c.WeightDecay)
	case !(c.ClipNorm >= 0):
		return fmt.Errorf("optimizer.clip_norm is %g: give 0 (off) or more", c.ClipNorm)
	}
	return nil
}

// Optimizer holds this rank's shards of the master weights and moments.
type Optimizer struct {
	cfg    AdamW
	comm   *collective.Comm
	ex     *tensor.Exec
	shards []shard
	copies int // of the state
	now    int // the copy that holds the newest
	steps  int // updates made so far
}

// shard is the slice [lo, hi) of a group that this rank updates.
type shard struct {
	group  *moe.Group
	lo, hi int
	counts []int // length of every rank's slice; nil for a local group
	states [2]tensor.AdamWState
}

// New returns an optimizer, which computes on the threads of ex.
//
// Master weights and moments lie in memory, one or two vectors of [StateLen] FP32 elements; without any, in one of its own. With one, an
// update takes place there. With two it leaves the state before it as it was: it reads one and writes the other, so that a rank that
// dies halfway has lost nothing. A new one is zero: Init or a checkpoint sets it.
func New(ex *tensor.Exec, groups []*moe.Group, c *collective.Comm, cfg AdamW, memory ...tensor.Tensor) *Optimizer {
	if len(memory) == 0 {
		memory = []tensor.Tensor{tensor.New(tensor.FP32, StateLen(groups, c))}
	}
	o := &Optimizer{cfg: cfg, comm: c, ex: ex, shards: shardsOf(groups, c), copies: len(memory)}
	if o.copies > len(shard{}.states) {
		panic(fmt.Sprintf("optim: memory for %d copies of the state: give 1 or 2", o.copies))
	}
	for i, m := range memory {
		at := 0
		for j := range o.shards {
			s := &o.shards[j]
			part := func() tensor.Tensor {
				lo := at
				at += padded(s.len())
				return m.Slice(lo, lo+s.len())
			}
			s.states[i] = tensor.AdamWState{Master: part(), ExpAvg: part(), ExpAvgSq: part()}
		}
	}
	return o
}

// StateLen is the number of FP32 elements of one rank's master weights and moments.
func StateLen(groups []*moe.Group, c *collective.Comm) (n int) {
	for _, s := range shardsOf(groups, c) {
		n += 3 * padded(s.len())
	}
	return n
}

func shardsOf(groups []*moe.Group, c *collective.Comm) (all []shard) {
	for _, g := range groups {
		s := shard{group: g, hi: g.Len()}
		if !g.Local {
			s.counts = split(g.Len(), c.Size())
			for _, n := range s.counts[:c.Rank()] {
				s.lo += n
			}
			s.hi = s.lo + s.counts[c.Rank()]
		}
		all = append(all, s)
	}
	return all
}

func (s *shard) len() int { return s.hi - s.lo }

// padded is a number of FP32 elements in whole cache lines.
func padded(n int) int {
	const line = tensor.Alignment / 4
	return (n + line - 1) / line * line
}

// split divides n elements among ranks at multiples of a cache line.
func split(n, ranks int) []int {
	const line = tensor.Alignment / 4
	counts := make([]int, ranks)
	for r := range counts {
		lo, hi := n/line*r/ranks*line, n/line*(r+1)/ranks*line
		if r == ranks-1 {
			hi = n
		}
		counts[r] = hi - lo
	}
	return counts
}

// Init sets the master weights to the model's initial ones and publishes them.
func (o *Optimizer) Init(seed uint64) error {
	for p := range o.Pieces {
		o.ex.Enter(o.ex.Enter(profile.Optimizer)) // which tells who watches that this goes on
		p.Param.Fill(p.Master, p.Offset, seed)
	}
	return o.Publish()
}

// Result is what a step did.
type Result struct {
	GradNorm float64 // global, before clipping
	Skipped  bool    // the gradient was not finite: nothing was changed
}

// Step makes a whole step at learning rate lr: Reduce, and then Apply, or Skip if the norm is not finite. It is collective.
func (o *Optimizer) Step(lr float64) (Result, error) {
	norm, err := o.Reduce()
	if err != nil {
		return Result{}, err
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		o.Skip()
		return Result{norm, true}, nil
	}
	return Result{norm, false}, o.Apply(lr, norm)
}

// Reduce sums the ranks' gradients and returns their global norm, before clipping: NaN or infinite if one of them is. Then comes Apply,
// Skip or Discard. It is collective.
func (o *Optimizer) Reduce() (norm float64, err error) {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	return o.reduce()
}

// Apply clips the summed gradients, whose global norm is given, updates the master weights at learning rate lr, publishes the working
// weights and lets the next gradients replace these. It is collective.
func (o *Optimizer) Apply(lr, norm float64) error {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	before := o.next()
	o.update(before, lr, norm)
	err := o.gather(o.renews)
	o.Discard()
	return err
}

// Skip leaves weights and moments as they were; the next gradients replace these.
func (o *Optimizer) Skip() {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	o.carry(o.next())
	o.Discard()
}

// Discard lets the next gradients replace these: they are to be computed again.
func (o *Optimizer) Discard() {
	for _, s := range o.shards {
		s.group.ZeroGrad()
	}
}

// next goes on to the copy of the state that the step under way makes, and returns the one before.
func (o *Optimizer) next() (before int) {
	before = o.now
	o.now = (o.now + 1) % o.copies
	return before
}

// renews says whether a shard's update brings what is derived from its weights up to date: where it is all of a group, and its state is
// written in place. Another copy of the state is written past the caches, which weights would have to be read again from.
func (o *Optimizer) renews(s shard) bool { return s.counts == nil && o.copies == 1 }

// update makes the newest state from the one before, and this rank's slices of the working weights, or what is derived from them.
func (o *Optimizer) update(before int, lr, norm float64) {
	o.steps++
	c := o.cfg
	step := tensor.NewAdamWStep(lr, c.Beta1, c.Beta2, c.Eps, c.WeightDecay, c.clip(norm), o.steps)
	for _, s := range o.shards {
		grad := s.grad()
		update := func(ex *tensor.Exec, lo, hi int, work tensor.Tensor) {
			tensor.AdamW(ex, s.states[o.now].Slice(lo, hi), s.states[before].Slice(lo, hi), work, grad.Slice(lo, hi), step)
		}
		if o.renews(s) {
			s.group.Renew(o.ex, update)
		} else {
			update(o.ex, 0, s.len(), s.work())
		}
		fault.Point(fault.InUpdate)
	}
}

// carry copies the state before, where the newest is in other memory.
func (o *Optimizer) carry(before int) {
	if o.now == before {
		return
	}
	for _, s := range o.shards {
		to, from := s.states[o.now], s.states[before]
		copy(to.Master.F32(), from.Master.F32())
		copy(to.ExpAvg.F32(), from.ExpAvg.F32())
		copy(to.ExpAvgSq.F32(), from.ExpAvgSq.F32())
	}
}

// Use says which copy of the state is the newest: that of number i, counted from 0, modulo the number of copies. Apply and Skip go on to
// the next.
func (o *Optimizer) Use(i int) { o.now = i % o.copies }

// clip returns the factor that brings a gradient of this norm to at most ClipNorm.
func (c AdamW) clip(norm float64) float64 {
	if c.ClipNorm == 0 {
		return 1
	}
	return min(1, c.ClipNorm/(norm+1e-6))
}

// reduce leaves the sum of the ranks' gradients in each rank's slices and returns the global norm.
func (o *Optimizer) reduce() (float64, error) {
	var squares exact.Sum
	for _, s := range o.shards {
		if s.counts != nil {
			if err := o.reduceScatter(s); err != nil {
				return 0, fmt.Errorf("summing %s gradients: %w", s.group.Name, err)
			}
		}
		o.addSquares(&squares, s)
	}
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if err := collective.AllReduce(o.comm, squares[:], collective.Sum); err != nil {
		return 0, fmt.Errorf("summing the gradient norm: %w", err)
	}
	return math.Sqrt(squares.Value()), nil
}

// normPiece is how many neighbouring squares are added up with roundings; the sums of pieces are added up exactly. A slice of one of
// 2, 4, 8 or 16 ranks is whole pieces, and so is an expert's parameter wherever it lives: the norm does not depend on the ranks.
const normPiece = 256

// addSquares adds the squares of the gradients of a shard.
func (o *Optimizer) addSquares(sum *exact.Sum, s shard) {
	add := func(t tensor.Tensor) {
		for _, x := range tensor.SumSquares(o.ex, t, normPiece) {
			sum.Add(x)
		}
	}
	if s.counts != nil {
		add(s.grad())
		return
	}
	for _, p := range s.group.Params {
		add(p.Grad.Reshape(p.Len()))
	}
}

func (o *Optimizer) reduceScatter(s shard) error {
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	return collective.ReduceScatter(o.comm, s.grad().F32(), s.group.Grad.F32(), s.counts, collective.Sum)
}

// Gradients yields this rank's slices of the summed gradients, between Reduce and what follows it.
func (o *Optimizer) Gradients(yield func(tensor.Tensor) bool) {
	for _, s := range o.shards {
		if !yield(s.grad()) {
			return
		}
	}
}

// Publish rounds the master weights into the working weights of all ranks. It is collective.
func (o *Optimizer) Publish() error {
	for _, s := range o.shards {
		tensor.Convert(o.ex, s.work().Mat(), s.states[o.now].Master.Mat())
	}
	return o.gather(func(shard) bool { return false })
}

// gather brings the slices of the working weights to all ranks, and what is derived from them up to date unless it is renewed already.
func (o *Optimizer) gather(renewed func(shard) bool) error {
	for _, s := range o.shards {
		if s.counts != nil {
			if err := o.allGather(s); err != nil {
				return fmt.Errorf("publishing %s weights: %w", s.group.Name, err)
			}
		}
		if !renewed(s) {
			o.refresh(s)
		}
		fault.Point(fault.InPublishing)
	}
	return nil
}

func (o *Optimizer) allGather(s shard) error {
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if all := s.group.Work; all.DType() == tensor.BF16 {
		return collective.AllGatherV(o.comm, all.BF16(), all.BF16()[s.lo:s.hi], s.counts)
	}
	all := s.group.Work.F32()
	return collective.AllGatherV(o.comm, all, all[s.lo:s.hi], s.counts)
}

// refresh quantises the weights, where they are.
func (o *Optimizer) refresh(s shard) {
	defer o.ex.Enter(o.ex.Enter(profile.Quantize))
	s.group.Refresh(o.ex)
}

func (s *shard) work() tensor.Tensor { return s.group.Work.Slice(s.lo, s.hi) }

func (s *shard) grad() tensor.Tensor { return s.group.Grad.Slice(s.lo, s.hi) }

// Piece is a run of one parameter's state that this rank owns: elements
// [Offset, Offset+len(Master)) of the flattened parameter.
type Piece struct {
	Param                    *moe.Param
	Offset                   int
	Master, ExpAvg, ExpAvgSq []float32
}

// Pieces calls yield for every piece of the newest state of this rank, in a fixed order.
func (o *Optimizer) Pieces(yield func(Piece) bool) {
	for _, s := range o.shards {
		at := 0
		for _, p := range s.group.Params {
			lo, hi := max(s.lo, at), min(s.hi, at+p.Len())
			if lo < hi {
				part := func(t tensor.Tensor) []float32 { return t.F32()[lo-s.lo : hi-s.lo] }
				state := s.states[o.now]
				if !yield(Piece{p, lo - at, part(state.Master), part(state.ExpAvg), part(state.ExpAvgSq)}) {
					return
				}
			}
			at += p.Len()
		}
	}
}

// State calls yield for every vector of the newest state of this rank, in a fixed order, with a name such as "exp_avg of the dense group".
func (o *Optimizer) State(yield func(name string, t tensor.Tensor) bool) {
	for _, s := range o.shards {
		state := s.states[o.now]
		for _, v := range []struct {
			name string
			t    tensor.Tensor
		}{{"master", state.Master}, {"exp_avg", state.ExpAvg}, {"exp_avg_sq", state.ExpAvgSq}} {
			if !yield(v.name+" of the "+s.group.Name+" group", v.t) {
				return
			}
		}
	}
}

// Steps returns the number of updates made, which sets the bias correction of the moments.
func (o *Optimizer) Steps() int { return o.steps }

// SetSteps continues after n updates, when master weights and moments were loaded.
func (o *Optimizer) SetSteps(n int) { o.steps = n }
