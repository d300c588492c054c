package ep

// Copies of the experts: several groups of ranks hold all of them, and each group exchanges its own
// tokens. What depends on the load of an expert must not depend on the number of groups. So the
// counts that the ranks exchange are those of all groups.

import (
	"errors"
	"fmt"

	"spmoe/collective"
)

// replicas is the part of an exchange that looks beyond its own group.
type replicas struct {
	world *collective.Comm // the ranks of all groups; nil if there is one group
	first int              // the rank of world that is rank 0 of this group
	all   []int32          // [ranks of world, experts]: rows
}

// Replicate says that the ranks of this exchange are one of several groups that each hold all
// experts. Together the groups are world. Group number i is the i-th run of consecutive ranks of
// world. [Options.Capacity] then bounds the rows of all copies of an expert together, and
// [Handle.Whole] counts them. All ranks of world call Replicate before the first exchange.
func (s *OneSided) Replicate(world *collective.Comm) error {
	n := s.comm.Size()
	s.replicas = replicas{world: world, first: world.Rank() - s.comm.Rank()}
	if world.Size()%n != 0 || s.replicas.first%n != 0 {
		return fmt.Errorf("ep: rank %d of %d is rank %d of a group of %d: groups are consecutive ranks of equal number", world.Rank(), world.Size(), s.comm.Rank(), n)
	}
	if len(world.Hosts()) > 1 {
		return errors.New("ep: copies of experts must be on one host: exchange tokens among all ranks")
	}
	s.replicas.all = make([]int32, world.Size()*s.layout.Experts)
	return nil
}

// countReplicas is count for one of several groups. It applies the capacity.
func (s *OneSided) countReplicas() error {
	r, experts := &s.replicas, s.layout.Experts
	if err := collective.AllGather(r.world, r.all, s.chosen); err != nil {
		return err
	}
	if err := checkCounts(r.all, experts); err != nil {
		return err
	}
	s.Options.limit(r.all, experts)
	copy(s.all, r.all[r.first*experts:])
	return nil
}

// countWhole sets the handle's count of the rows of all copies of this rank's experts.
func (s *OneSided) countWhole(h *Handle) {
	r := &s.replicas
	if r.world == nil {
		h.Whole = nil
		return
	}
	h.Whole = resize(h.Whole, s.layout.PerRank)
	clear(h.Whole)
	lo, hi := s.layout.Local(s.comm.Rank())
	for at := 0; at < len(r.all); at += s.layout.Experts {
		for e := lo; e < hi; e++ {
			h.Whole[e-lo] += r.all[at+e]
		}
	}
}
