// Package optim trains a moe.Model with FP32 master weights that are sharded over the ranks that
// hold the same parameters (ZeRO-1): all ranks, or the replicas of an expert. Every rank sums and
// updates its own slice and sends the new working weights to the others. An expert without replicas
// is updated on the rank that holds it. A [Rule] defines the update; AdamW is the first one.
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

// Optimizer holds this rank's shards of the master weights and of the rule's state.
type Optimizer struct {
	ClipNorm float64 // maximum global norm of the gradients; 0: no clipping

	comm   *collective.Comm
	ex     *tensor.Exec
	groups []*moe.Group
	shards []shard // of each group in turn
	copies int     // of the state
	now    int     // the newest copy
	steps  int     // number of updates
}

// New returns an optimizer, which computes on the threads of ex.
//
// Its state is in memory: one or two pieces of [StateBytes], or a piece of its own if none is
// given. With one piece, it updates in place. With two, an update reads one and writes the other,
// so that the old state survives if the rank dies halfway. A new state is zero until Init or a
// checkpoint sets it.
func New(ex *tensor.Exec, groups []*moe.Group, c *collective.Comm, rule Rule, memory ...[]byte) *Optimizer {
	if len(memory) == 0 {
		memory = [][]byte{tensor.New(tensor.UINT8, StateBytes(rule, groups)).Bytes()}
	}
	o := &Optimizer{comm: c, ex: ex, groups: groups, copies: len(memory), shards: shardsOf(groups, rule)}
	divide(o.shards)
	for i, m := range memory {
		layOut(o.shards, i, m)
	}
	return o
}

// DryStep makes the collectives of Reduce and Apply, in a dry run.
func (o *Optimizer) DryStep() error {
	if _, err := o.Reduce(); err != nil {
		return err
	}
	return o.distribute(o.updatesWork)
}

// divide says which gradients of each group its ranks sum and own.
func divide(shards []shard) {
	var parts []moe.Division // of the group
	for _, s := range shards {
		if s.peers != nil && s.counts == nil {
			parts = append(parts, s.division)
		}
		if s.last && parts != nil {
			s.group.Divide(s.peers, parts...)
			parts = nil
		}
	}
}

// Init sets the master weights to the model's initial ones and publishes them.
func (o *Optimizer) Init(seed uint64) error {
	for p := range o.Pieces {
		o.ex.Enter(o.ex.Enter(profile.Optimizer)) // so that the profile shows it as the optimizer's
		runs := (len(p.Master) + fillRun - 1) / fillRun
		tensor.Parallel(o.ex, runs, len(p.Master)*drawWork, p, func(_ *tensor.Exec, p Piece, lo, hi int) {
			first, last := lo*fillRun, min(hi*fillRun, len(p.Master))
			p.Param.Fill(p.Master[first:last], p.Offset+first, seed)
		})
	}
	return o.Publish()
}

// fillRun is the number of initial weights that a thread draws at a time. Drawing one takes as
// long as drawWork operations of a product, or a tenth of it with a kernel.
const fillRun, drawWork = 1 << 16, 1000

// Step makes a whole step at learning rate lr: Reduce, and then Apply, or Skip if the norm is not
// finite. It is collective.
func (o *Optimizer) Step(lr float64) (norm float64, err error) {
	norm, err = o.Reduce()
	if err == nil && (math.IsNaN(norm) || math.IsInf(norm, 0)) {
		o.Skip()
	} else if err == nil {
		err = o.Apply(lr, norm)
	}
	return norm, err
}

// Apply clips the summed gradients with the given global norm, updates the master weights at
// learning rate lr, publishes the working weights, and resets the gradients. It is collective.
func (o *Optimizer) Apply(lr, norm float64) error {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	before := o.next()
	o.update(before, lr, norm)
	err := o.distribute(o.updatesWork)
	o.Discard()
	return err
}

// Skip leaves weights and state unchanged and resets the gradients.
func (o *Optimizer) Skip() {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	o.carry(o.next())
	o.Discard()
}

// Discard resets the gradients, which are to be computed again.
func (o *Optimizer) Discard() {
	for _, g := range o.groups {
		g.ZeroGrad()
	}
}

// next selects the copy of the state that the current step writes, and returns the previous one.
func (o *Optimizer) next() (before int) {
	before = o.now
	o.now = (o.now + 1) % o.copies
	return before
}

// updatesWork reports whether a shard's update also updates what is derived from its weights: if
// it is a whole group of this rank alone, updated in place, weight by weight. Another copy of the
// state would be written past the caches, and the weights would have to be read again.
func (o *Optimizer) updatesWork(s shard) bool {
	return s.group.Ranks == nil && o.copies == 1 && !s.rule.WholeMatrices()
}

// update computes the newest state from the previous one, and this rank's slices of the working
// weights, or what is derived from them.
func (o *Optimizer) update(before int, lr, norm float64) {
	o.steps++
	step := Step{LR: lr, GradScale: 1, Number: o.steps}
	if o.ClipNorm > 0 {
		step.GradScale = min(1, o.ClipNorm/(norm+1e-6))
	}
	for i := range o.shards {
		s := &o.shards[i]
		update := s.rule.Prepare(step)
		grad := s.grad()
		run := func(lo, hi int, work tensor.Tensor) Run {
			return Run{Grad: grad.Slice(lo, hi), Work: work, Sums: &s.sums.update, dst: s.states[o.now], src: s.states[before], lo: lo, hi: hi}
		}
		switch {
		case s.rule.WholeMatrices():
			for p := range s.parts {
				r := run(p.lo, p.hi, s.work().Slice(p.lo, p.hi))
				r.Param = p.param
				update(o.ex, r)
			}
		case o.updatesWork(*s):
			s.group.UpdateWork(o.ex, func(ex *tensor.Exec, lo, hi int, work tensor.Tensor) {
				update(ex, run(lo, hi, work))
			})
		default:
			update(o.ex, run(0, s.len(), s.work()))
		}
		s.compare(before, o.now)
		fault.Point(fault.InUpdate)
	}
}

// carry copies the previous state if the newest one is in other memory.
func (o *Optimizer) carry(before int) {
	if o.now == before {
		return
	}
	for _, s := range o.shards {
		for i, from := range s.states[before] {
			copy(s.states[o.now][i].Bytes(), from.Bytes())
		}
		s.sums.state[o.now] = s.sums.state[before]
	}
}

// Use selects the newest copy of the state: number i, counted from 0, modulo the number of copies.
func (o *Optimizer) Use(i int) { o.now = i % o.copies }

// Reduce leaves the sum of the ranks' gradients in each rank's slices and returns their global
// norm before clipping. The norm is NaN or infinite if a gradient is. Apply, Skip or Discard must
// follow. Reduce is collective.
func (o *Optimizer) Reduce() (norm float64, err error) {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	var squares exact.Sum
	for _, g := range o.groups {
		if err := g.SumGrad(o.ex); err != nil {
			return 0, err
		}
		if err := g.ShareScores(); err != nil {
			return 0, err
		}
	}
	for _, s := range o.shards {
		s.sums.grad = nil
		for p := range s.parts {
			if p.param.Frozen {
				continue
			}
			for _, x := range tensor.SumSquares(o.ex, s.grad().Slice(p.lo, p.hi), normPiece) {
				squares.Add(x)
			}
		}
	}
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if err := collective.AllReduce(o.comm, squares[:], collective.Sum); err != nil {
		return 0, fmt.Errorf("summing the gradient norm: %w", err)
	}
	return math.Sqrt(squares.Value()), nil
}

// normPiece is the number of adjacent squares that are summed with rounding. The sums of pieces are
// added exactly. Pieces begin again at each parameter, and slices consist of whole pieces. So the
// norm depends neither on the number of ranks nor on which of them have which parameters.
const normPiece = moe.ShardMultiple

// Publish rounds the master weights to the working weights of all ranks. It is collective.
func (o *Optimizer) Publish() error {
	if err := o.comm.Barrier(); err != nil { // a slower rank may still read shared weights
		return fmt.Errorf("publishing weights: %w", err)
	}
	for _, s := range o.shards {
		var work tensor.Sum
		tensor.RoundWeights(o.ex, s.work(), s.states[o.now][0], &work, nil)
		s.sums.work = work.Load()
	}
	return o.distribute(func(shard) bool { return false })
}

// distribute makes the slices of the working weights known to all ranks, and updates what is
// derived from them unless updatesWork did. Slices of shared groups are where all ranks of the host
// read them.
//
// No rank reads shared weights when an update overwrites them: the sum of the gradient norm comes
// after all passes of all ranks. No rank adds to shared gradients while another one updates from
// them, because distribute comes first.
func (o *Optimizer) distribute(updated func(shard) bool) error {
	for _, s := range o.shards {
		if err := o.allGather(s); err != nil {
			return fmt.Errorf("publishing %s weights: %w", s.group.Name, err)
		}
		if s.last && !updated(s) {
			before := o.ex.Enter(profile.Quantize)
			if err := s.group.Refresh(o.ex); err != nil {
				return fmt.Errorf("quantizing %s weights: %w", s.group.Name, err)
			}
			o.ex.Enter(before)
		}
		fault.Point(fault.InPublishing)
	}
	return nil
}

// allGather makes the weights of all slices known to all ranks of the group.
func (o *Optimizer) allGather(s shard) error {
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if s.peers != nil {
		if err := s.publish(); err != nil {
			return err
		}
	}
	if s.group.Shared {
		return s.group.Host().Barrier()
	}
	return nil
}

// publish sends the weights of this rank's slice to its peers, and receives theirs.
func (s *shard) publish() error {
	all := s.group.Work.Slice(s.division.First, s.division.End())
	own := s.work()
	var err error
	if all.DType() == tensor.BF16 {
		err = collective.AllGatherV(s.peers, all.BF16(), own.BF16(), s.division.Counts)
	} else {
		err = collective.AllGatherV(s.peers, all.F32(), own.F32(), s.division.Counts)
	}
	if err != nil {
		return err
	}
	total := [1]uint32{s.sums.work}
	err = collective.AllReduce(s.peers, total[:], collective.Sum)
	s.sums.work = total[0]
	return err
}

// Piece is a range of one parameter's state that this rank owns: elements [Offset,
// Offset+len(Master)) of the flattened parameter.
type Piece struct {
	Param  *moe.Param
	Offset int
	Master []float32
	State  []Named // the whole state: the master weights, then the vectors of the rule
}

// Named is a part of a vector of the state.
type Named struct {
	Name string
	Data tensor.Tensor
}

// Pieces yields every piece of the newest state of this rank, in a fixed order.
func (o *Optimizer) Pieces(yield func(Piece) bool) {
	for _, s := range o.shards {
		for p := range s.parts {
			piece := Piece{Param: p.param, Offset: p.offset}
			for i, v := range vectors(s.rule) {
				piece.State = append(piece.State, Named{v.Name, s.states[o.now][i].Slice(p.lo, p.hi)})
			}
			piece.Master = piece.State[0].Data.F32()
			if !yield(piece) {
				return
			}
		}
	}
}

// Steps returns the number of updates.
func (o *Optimizer) Steps() int { return o.steps }

// SetSteps sets the number of updates after the state was loaded.
func (o *Optimizer) SetSteps(n int) { o.steps = n }
