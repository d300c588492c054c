package trainer

// How long a rank has waited for others, on all communicators of its mesh.

import (
	"time"

	"spmoe/moe"
)

// waitsOf returns, per rank, how long this rank has waited for it.
func waitsOf(m moe.Mesh) []time.Duration {
	all := make([]time.Duration, m.World.Size())
	for c := range m.Comms {
		ranks := m.RanksOf(c)
		for i, took := range c.Waits() {
			all[ranks[i]] += took
		}
	}
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
