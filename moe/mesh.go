package moe

import (
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/mx"
)

// Mesh holds the communicators of a rank: with which ranks it shares what.
type Mesh struct {
	Layout mesh.Layout
	World  *collective.Comm // all ranks
	// EP has the ranks that hold each routed expert once. Tokens are exchanged among them.
	EP *collective.Comm
	// Replicas has the ranks with the same experts as this one, in the order of World; nil: no
	// other rank has them.
	Replicas *collective.Comm
}

// OneGroup returns the mesh in which all ranks of c exchange tokens and no expert has a replica.
func OneGroup(c *collective.Comm) Mesh {
	return Mesh{Layout: mesh.Default(c.Size()), World: c, EP: c}
}

// NewMesh divides the ranks of c according to a legal layout of them. It is collective.
func NewMesh(c *collective.Comm, l mesh.Layout) (m Mesh, err error) {
	switch {
	case l.World != c.Size():
		return m, fmt.Errorf("a layout of %d ranks is not one of %d", l.World, c.Size())
	case l.Replicas() == 1:
		return OneGroup(c), nil
	case len(c.Hosts()) > 1:
		return m, fmt.Errorf("%d ranks on several hosts hold replicas of experts: exchange tokens among all ranks (ep %[1]d)", c.Size())
	}
	m.Layout, m.World = l, c
	if m.EP, err = c.Split(l.EPGroup(c.Rank())[0], c.Rank()); err != nil {
		return m, err
	}
	m.Replicas, err = c.Split(l.ExpertReplicas(c.Rank())[0], c.Rank())
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
	return exchange, exchange.Replicate(m.World)
}

// replicated reports whether other ranks train the same experts.
func (m *Model) replicated() bool { return m.mesh.Replicas != nil }

// CheckReplicas returns an error if a recipe has one scale for all rows of an expert (TensorScale).
// Replicas divide these rows, so codes would depend on the number of replicas. No built-in recipe
// has such a scale, and blocks of several rows exist for weights only: see [Recipe].
func (p Precision) CheckReplicas() error {
	if p.Experts == nil {
		return nil
	}
	for _, c := range []mx.Cast{p.Experts.Forward.Left, p.Experts.Dgrad.Left} {
		if c.Quantizes() && c.Format.TensorScale {
			return fmt.Errorf("precision %s: %s has a scale for all rows of an expert, which replicas would divide: exchange tokens among all ranks", p.Name, c.Format.Name)
		}
	}
	return nil
}
