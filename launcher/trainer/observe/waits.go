package observe

// The communicators of a rank, and how long it has waited for others on them.

import (
	"time"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// Links are the communicators of a rank, each once. The first one has all ranks.
type Links []*collective.Comm

// NewLinks lists the communicators of a rank: all ranks, its mesh and its pipeline, which may be
// nil.
func NewLinks(all *collective.Comm, m moe.Mesh, p *pipe.Rank) Links {
	list, meshes := Links{all}, []moe.Mesh{m}
	if p != nil {
		meshes = p.Meshes
	}
	for _, m := range meshes {
		for c := range m.Comms {
			if c != all {
				list = append(list, c)
			}
		}
	}
	if p != nil {
		list = append(list, p.Line)
	}
	return list
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
