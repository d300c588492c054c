package trainer

// How long a rank has waited for others, on all communicators of its mesh.

import (
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/moe"
)

// waitsOf returns, per rank, how long this rank has waited for it.
func waitsOf(m moe.Mesh) []time.Duration {
	all := slices.Clone(m.World.Waits())
	if m.Replicas == nil {
		return all
	}
	add := func(c *collective.Comm, ranks []int) {
		for i, took := range c.Waits() {
			all[ranks[i]] += took
		}
	}
	add(m.EP, m.Layout.EPGroup(m.World.Rank()))
	add(m.Replicas, m.Layout.ExpertReplicas(m.World.Rank()))
	return all
}

// waited returns how long this rank has waited for others.
func waited(m moe.Mesh) (sum time.Duration) {
	for c := range m.Comms {
		for _, s := range c.Stats() {
			sum += s.Wait
		}
	}
	return sum
}
