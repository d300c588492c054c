package ep

// Copies of the experts: several groups of ranks hold all of them, and each group exchanges its own
// tokens. What depends on the load of an expert must not depend on the number of groups. So the
// counts that the ranks exchange are those of all groups.

import (
	"fmt"

	"spmoe/collective"
)

// replicas is the part of an exchange that looks beyond its own group.
type replicas struct {
	world *collective.Comm // the ranks of all groups; nil if there is one group
	first int              // the rank of world that is rank 0 of this group
	all   []int32          // [ranks of world, experts]: rows
}

// newReplicas describes the groups for one rank of comm: see [Exchange].
func newReplicas(world, comm *collective.Comm, experts int) (replicas, error) {
	n, first := comm.Size(), world.Rank()-comm.Rank()
	if world.Size()%n != 0 || first%n != 0 {
		return replicas{}, fmt.Errorf("ep: rank %d of %d is rank %d of a group of %d: groups are consecutive ranks of equal number", world.Rank(), world.Size(), comm.Rank(), n)
	}
	return replicas{world, first, make([]int32, world.Size()*experts)}, nil
}

// count tells the ranks of all groups the rows of this rank per expert, chosen. It applies the
// limit, and returns the rows of this group's ranks and those after them, [ranks, experts].
func (r *replicas) count(chosen []int32, limit Options) ([]int32, error) {
	experts := len(chosen)
	if err := collective.AllGather(r.world, r.all, chosen); err != nil {
		return nil, err
	}
	if err := checkCounts(r.all, experts); err != nil {
		return nil, err
	}
	limit.limit(r.all, experts)
	return r.all[r.first*experts:], nil
}

// countWhole sets the handle's counts of the rows of all copies of the experts of a rank of the
// group.
func (r *replicas) countWhole(h *Handle, layout Layout, rank int) {
	if r.world == nil {
		h.Whole, h.Before = nil, nil
		return
	}
	lo, hi := layout.Local(rank)
	h.Whole, h.Before = resize(h.Whole, hi-lo), resize(h.Before, hi-lo)
	clear(h.Whole)
	for source := range r.world.Size() {
		if source == r.first {
			copy(h.Before, h.Whole)
		}
		for e := lo; e < hi; e++ {
			h.Whole[e-lo] += r.all[source*layout.Experts+e]
		}
	}
}
