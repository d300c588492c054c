package trainer

// The guard of the memory: what a step leaves behind is what the next one finds. Checksums are taken of it and compared, with those of
// before and, of what all ranks hold, with theirs. Weights that have changed are made anew, from the master weights, and the step is
// computed again; master weights and moments that have changed cannot be mended: the ranks go back to the step before.

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// integrity is the checksums of a rank's memory after a step.
type integrity struct {
	taken   bool
	weights []uint64  // of each group, codes included, and behind them of the selection biases
	state   []uint64  // of each vector of the optimizer's state
	biases  []float32 // a copy
	mends   int       // since they were taken
}

// mostMends is how often weights may have to be made anew within a step.
const mostMends = 3

// takeSums notes what is in this rank's memory after a step, if it is one to be checked.
func (r *rank) takeSums() {
	c := &r.integrity
	if c.taken = every(r.cfg.Guard.Memory, r.progress.Step); !c.taken {
		return
	}
	defer r.ex.Enter(r.ex.Enter(profile.Guards))
	c.weights, c.state, c.mends = r.sumWeights(c.weights[:0]), r.sumState(c.state[:0]), 0
	c.biases = c.biases[:0]
	for _, route := range r.routings {
		c.biases = append(c.biases, route.Bias.F32()...)
	}
}

// stateSums returns the checksums that belong to the newest state of the optimizer; none if it is not checked.
func (c *integrity) stateSums() []uint64 {
	if !c.taken {
		return nil
	}
	return c.state
}

// sumPrime is what checksums are put together with, FNV's.
const sumPrime = 1<<40 + 1<<8 + 0xb3

// addSum adds the checksum of a tensor to that of those before it.
func addSum(sum uint64, ex *tensor.Exec, t tensor.Tensor) uint64 {
	return sum*sumPrime ^ tensor.Checksum(ex, t)
}

// sumWeights appends the checksums of the working weights of each group, and of the selection biases.
func (r *rank) sumWeights(sums []uint64) []uint64 {
	for _, g := range r.model.Groups {
		var sum uint64
		for t := range g.Weights {
			sum = addSum(sum, r.ex, t)
		}
		sums = append(sums, sum)
	}
	var sum uint64
	for _, route := range r.routings {
		sum = addSum(sum, r.ex, route.Bias)
	}
	return append(sums, sum)
}

// sumState appends the checksums of the optimizer's state.
func (r *rank) sumState(sums []uint64) []uint64 {
	for _, t := range r.optim.State {
		sums = append(sums, tensor.Checksum(r.ex, t))
	}
	return sums
}

// finding is what one rank has found, in the form in which ranks exchange it: the sets of weights and of state that have changed, as
// bits, and then the checksums that its weights had before.
type finding []uint64

func (f finding) changed(i int) bool { return f[0]>>i&1 == 1 }
func (f finding) state() uint64      { return f[1] }
func (f finding) sums() []uint64     { return f[2:] }

// differing is the set of indices at which two lists differ.
func differing(a, b []uint64) (set uint64) {
	for i := range a {
		if a[i] != b[i] {
			set |= 1 << i
		}
	}
	return set
}

// checkMemory compares this rank's memory with what it was after the step before. mended says that weights were made anew, on all ranks:
// what was computed from them is to be computed again. It is collective.
func (r *rank) checkMemory() (mended bool, err error) {
	c := &r.integrity
	if !c.taken {
		return false, nil
	}
	defer r.ex.Enter(r.ex.Enter(profile.Guards))
	mine := append(finding{differing(r.sumWeights(nil), c.weights), differing(r.sumState(nil), c.state)}, c.weights...)
	flat := make([]uint64, len(mine)*r.comm.Size())
	if err := collective.AllGather(r.comm, flat, mine); err != nil {
		return false, fmt.Errorf("comparing checksums: %w", err)
	}
	all := make([]finding, r.comm.Size())
	for i := range all {
		all[i] = flat[i*len(mine):][:len(mine)]
	}
	if err := r.damage(all); err != nil {
		return false, err
	}
	what := r.strange(all)
	if len(what) == 0 {
		return false, nil
	}
	if c.mends++; c.mends > mostMends {
		return false, fmt.Errorf("%s: they were made anew %d times, and change again: this machine's memory is not reliable", strings.Join(what, "; "), mostMends)
	}
	r.alarm("step %d: %s: they are made anew", r.progress.Step+1, strings.Join(what, "; "))
	return true, r.mend(all)
}

// strange lists the weights that have changed by themselves, and those that are not the same on all ranks, with the ranks.
func (r *rank) strange(all []finding) (what []string) {
	groups := r.model.Groups
	for i := range groups {
		name := groups[i].Name + " weights"
		what = append(what, changes(all, i, name)...)
		if !groups[i].Local {
			what = append(what, disagreements(all, i, name)...)
		}
	}
	const biases = "selection biases"
	what = append(what, changes(all, len(groups), biases)...)
	return append(what, disagreements(all, len(groups), biases)...)
}

// changes names the ranks whose weights number i have changed.
func changes(all []finding, i int, name string) (what []string) {
	for rank, f := range all {
		if f.changed(i) {
			what = append(what, fmt.Sprintf("%s of rank %d have changed in memory", name, rank))
		}
	}
	return what
}

// disagreements names the ranks whose weights number i were made different from those of the others.
func disagreements(all []finding, i int, name string) (what []string) {
	odd, _ := minority(column(all, i))
	for _, rank := range odd {
		what = append(what, fmt.Sprintf("%s of rank %d are not those of the other ranks", name, rank))
	}
	return what
}

func column(all []finding, i int) (sums []uint64) {
	for _, f := range all {
		sums = append(sums, f.sums()[i])
	}
	return sums
}

// minority returns the ranks that do not have what most have, and the first that does. Where no more than half agree, the minority is
// all of them.
func minority(sums []uint64) (odd []int, source int) {
	counts := map[uint64]int{}
	for _, s := range sums {
		counts[s]++
	}
	for rank, s := range sums {
		if counts[s] > counts[sums[source]] {
			source = rank
		}
	}
	for rank, s := range sums {
		if s != sums[source] || 2*counts[s] <= len(sums) {
			odd = append(odd, rank)
		}
	}
	return odd, source
}

// mend makes all weights anew: selection biases from the copy, or from the rank that has those of most, the others from the master
// weights.
func (r *rank) mend(all []finding) error {
	c, biases := &r.integrity, len(r.model.Groups)
	if all[r.comm.Rank()].changed(biases) {
		r.setBiases(c.biases)
	}
	known := c.weights[biases] // which the copy must have, or this is found again
	if odd, source := minority(column(all, biases)); len(odd) > 0 {
		if err := collective.Bcast(r.comm, c.biases, source); err != nil {
			return fmt.Errorf("mending selection biases: %w", err)
		}
		r.setBiases(c.biases)
		known = all[source].sums()[biases]
	}
	if err := r.optim.Publish(); err != nil {
		return err
	}
	c.weights = r.sumWeights(c.weights[:0])
	c.weights[biases] = known
	return nil
}

// setBiases sets the selection biases of all routers, one after the other.
func (r *rank) setBiases(from []float32) {
	for _, route := range r.routings {
		from = from[copy(route.Bias.F32(), from):]
	}
}

// DamageError says that something else than the optimizer has changed its state.
type DamageError struct {
	Rank, Step int // that owns the state, and after which it was whole
	What       []string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the optimizer's state of rank %d after step %d has changed in memory: %s", e.Rank, e.Step, strings.Join(e.What, ", "))
}

// damageOf returns what has changed of a rank's state, given as a set, as an error; nil if nothing has.
func (r *rank) damageOf(rank int, set uint64) *DamageError {
	if set == 0 {
		return nil
	}
	e, i := &DamageError{Rank: rank, Step: r.progress.Step}, 0
	for name := range r.optim.State {
		if set>>i&1 == 1 {
			e.What = append(e.What, name)
		}
		i++
	}
	return e
}

// damage ends the run if a rank's state has changed. Where processes are replaced, the rank whose it is forgets its newest state and
// crashes, so that all go back to the one before, if there is one.
func (r *rank) damage(all []finding) error {
	heals, found := r.keeper.states != nil, false
	for rank, f := range all {
		if e := r.damageOf(rank, f.state()); e != nil {
			found = true
			r.alarm("%v", e)
		}
	}
	mine := r.damageOf(r.comm.Rank(), all[r.comm.Rank()].state())
	switch {
	case mine != nil && heals && r.keeper.forget(r.progress.Step, r.begun, r.continues):
		panic(mine)
	case mine != nil:
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", mine)
	case found:
		return r.comm.Barrier() // to which that rank does not come
	}
	return nil
}

// checkKept compares the optimizer's state with the checksums that were kept with it.
func (r *rank) checkKept(sums []uint64) error {
	if len(sums) == 0 {
		return nil
	}
	if e := r.damageOf(r.comm.Rank(), differing(r.sumState(nil), sums)); e != nil {
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", e)
	}
	return nil
}
