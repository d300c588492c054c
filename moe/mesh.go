package moe

import (
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/mx"
)

// Mesh holds the communicators of a rank: with which ranks it shares what.
type Mesh struct {
	World *collective.Comm // all ranks
	// EP has consecutive ranks of World that hold each routed expert once. Tokens are exchanged
	// among them.
	EP *collective.Comm
	// Replicas has the ranks with the same experts as this one, in the order of World; nil: no other
	// rank has them.
	Replicas *collective.Comm
}

// OneGroup returns the mesh in which all ranks of c exchange tokens and no expert has a replica.
func OneGroup(c *collective.Comm) Mesh { return Mesh{World: c, EP: c} }

// NewMesh divides the ranks of c into groups of ep consecutive ranks, each of which holds all
// experts. Rank r is number r%ep of group r/ep. It is collective.
func NewMesh(c *collective.Comm, ep int) (m Mesh, err error) {
	n := c.Size()
	switch {
	case ep < 1 || n%ep != 0:
		return m, fmt.Errorf("groups of %d ranks that hold all experts do not divide %d ranks", ep, n)
	case ep == n:
		return OneGroup(c), nil
	case len(c.Hosts()) > 1:
		return m, fmt.Errorf("%d ranks on several hosts hold replicas of experts: exchange tokens among all %d ranks instead", n, n)
	}
	m.World = c
	if m.EP, err = c.Split(c.Rank()/ep, c.Rank()); err != nil {
		return m, err
	}
	m.Replicas, err = c.Split(c.Rank()%ep, c.Rank())
	return m, err
}

// Comms yields the communicators of the mesh, each once.
func (m Mesh) Comms(yield func(*collective.Comm) bool) {
	if yield(m.World) && m.Replicas != nil && yield(m.EP) {
		yield(m.Replicas)
	}
}

// NewExchange returns the exchange of this name among the ranks that hold each expert once: see
// [ep.New].
func (m Mesh) NewExchange(name string, experts int, options ep.Options) (ep.Exchange, error) {
	exchange, err := ep.New(name, m.EP, experts, options)
	if err != nil || m.Replicas == nil {
		return exchange, err
	}
	x, ok := exchange.(*ep.OneSided)
	if !ok {
		return nil, fmt.Errorf("experts with replicas need the onesided exchange, not %s", name)
	}
	return x, x.Replicate(m.World)
}

// Waits returns, per rank of World, how long this rank has waited for it.
func (m Mesh) Waits() []time.Duration {
	all := slices.Clone(m.World.Waits())
	n, first := m.EP.Size(), m.World.Rank()-m.EP.Rank()
	if m.Replicas == nil {
		return all
	}
	for i, took := range m.EP.Waits() {
		all[first+i] += took
	}
	for i, took := range m.Replicas.Waits() {
		all[m.EP.Rank()+i*n] += took
	}
	return all
}

// Waited returns how long this rank has waited for others.
func (m Mesh) Waited() (sum time.Duration) {
	for c := range m.Comms {
		for _, s := range c.Stats() {
			sum += s.Wait
		}
	}
	return sum
}

// replicated reports whether other ranks train the same experts.
func (m *Model) replicated() bool { return m.mesh.Replicas != nil }

// CheckReplicas returns an error if replicas of an expert cannot quantize the rows that each of them has
// with the bits that all rows together would have.
func (p Precision) CheckReplicas() error {
	if p.Experts == nil {
		return nil
	}
	for _, c := range []mx.Cast{p.Experts.Forward.Left, p.Experts.Dgrad.Left} {
		if c.Quantizes() && (c.Format.Block[0] > 1 || c.Format.TensorScale) {
			return fmt.Errorf("precision %s: a scale of %s is for several rows of an expert, which replicas would divide: exchange tokens among all ranks", p.Name, c.Format.Name)
		}
	}
	return nil
}
