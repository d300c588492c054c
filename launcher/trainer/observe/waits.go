package observe

// The communicators of a rank, and how long it has waited for others on them.

import (
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// link is a communicator of a rank.
type link struct {
	*collective.Comm
	ranks []int // its ranks, as numbers among all ranks
}

// Links are the communicators of a rank, each once. The first one has all ranks.
type Links []link

// NewLinks lists the communicators of a rank: all ranks, its mesh and its pipeline, which may be
// nil.
func NewLinks(all *collective.Comm, m moe.Mesh, p *pipe.Rank) Links {
	list := Links{{all, state.EveryRank(all.Size())}}
	meshes := []moe.Mesh{m}
	if p != nil {
		meshes = p.Meshes
	}
	first := all.Rank() - m.World.Rank() // of the ranks with the same stages
	for _, m := range meshes {
		for c := range m.Comms {
			if c == all {
				continue
			}
			var ranks []int
			for _, r := range m.RanksOf(c) {
				ranks = append(ranks, first+r)
			}
			list = append(list, link{c, ranks})
		}
	}
	if p != nil {
		var ranks []int
		for r := m.World.Rank(); r < all.Size(); r += m.World.Size() {
			ranks = append(ranks, r)
		}
		list = append(list, link{p.Line, ranks})
	}
	return list
}

// Waits returns, per rank, how long this rank has waited for it.
func (l Links) Waits() []time.Duration {
	all := make([]time.Duration, l[0].Size())
	for _, c := range l {
		for i, took := range c.Waits() {
			all[c.ranks[i]] += took
		}
	}
	return all
}

// Met returns how long this rank has waited for others, without messages.
func (l Links) Met() (sum time.Duration) {
	for _, c := range l {
		for kind, s := range c.Stats() {
			if collective.Kind(kind) != collective.KindMessage {
				sum += s.Wait
			}
		}
	}
	return sum
}
