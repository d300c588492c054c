package mesh

// Which ranks belong together: coordinates of a rank, and groups along axes.

import (
	"fmt"
	"slices"
)

// Coordinate returns a rank's place along an axis.
func (l Layout) Coordinate(rank int, axis Axis) int {
	l.checkRank(rank)
	switch axis {
	case PP:
		return rank / l.StageRanks()
	case DPReplicate:
		return rank / l.Shards() % l.DPReplicate
	case DPShard:
		return rank / l.Sharers() % l.DPShard
	case CP:
		return rank / l.Tensor() % l.Context()
	case TP:
		return rank % l.Tensor()
	case EFSDP:
		return rank % l.Shards() / l.EP
	case EP:
		return rank % l.EP
	}
	panic(fmt.Sprintf("mesh: no axis has the name %q", string(axis)))
}

// Group returns the ranks, in ascending order, that differ from a rank along the given axes only.
// The rank is one of them. The axes must belong to one of the two meshes.
func (l Layout) Group(rank int, axes ...Axis) []int {
	l.checkRank(rank)
	group := []int{}
	fixed := l.others(axes)
	for peer := range l.World {
		if !slices.ContainsFunc(fixed, func(a Axis) bool { return l.Coordinate(peer, a) != l.Coordinate(rank, a) }) {
			group = append(group, peer)
		}
	}
	return group
}

// Groups returns all groups along the given axes, ordered by their lowest ranks. Each rank is in
// one of them.
func (l Layout) Groups(axes ...Axis) (all [][]int) {
	for rank := range l.World {
		if group := l.Group(rank, axes...); group[0] == rank {
			all = append(all, group)
		}
	}
	return all
}

// EPGroup returns the ranks that hold all experts together and exchange tokens: one place in
// dp_replicate × efsdp. They are EP neighbors, and the first is a multiple of EP.
func (l Layout) EPGroup(rank int) []int { return l.Group(rank, EP) }

// ExpertReplicas returns the ranks that hold the same experts as this one.
func (l Layout) ExpertReplicas(rank int) []int { return l.Group(rank, DPReplicate, EFSDP) }

// others returns the axes that remain in the mesh of the given axes.
func (l Layout) others(axes []Axis) []Axis {
	for _, mesh := range [...][]Axis{Dense[:], Sparse[:]} {
		if !slices.ContainsFunc(axes, func(a Axis) bool { return !slices.Contains(mesh, a) }) {
			return slices.DeleteFunc(slices.Clone(mesh), func(a Axis) bool { return slices.Contains(axes, a) })
		}
	}
	panic(fmt.Sprintf("mesh: %q are not axes of one mesh", axes))
}

func (l Layout) checkRank(rank int) {
	if rank < 0 || rank >= l.World {
		panic(fmt.Sprintf("mesh: rank %d of %d", rank, l.World))
	}
}

// OnHosts returns the number of ranks of a stage on each of its hosts. first has the first rank of
// each host.
func (l Layout) OnHosts(stage int, first []int) (ranks []int) {
	begin, end := stage*l.StageRanks(), (stage+1)*l.StageRanks()
	for _, rank := range append(slices.Clone(first), end) {
		if begin < rank && rank <= end {
			ranks = append(ranks, rank-begin)
			begin = rank
		}
	}
	return ranks
}
