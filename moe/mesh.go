package moe

import (
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
)

// Mesh holds the communicators of a rank: with which ranks it shares what.
type Mesh struct {
	Layout mesh.Layout
	World  *collective.Comm // all ranks
	// Host has the ranks of this host; nil: it has one rank and shares no sequence, or Across is
	// nil.
	Host *collective.Comm
	// Across has the ranks with the same place on each host, in the order of World; nil: there is
	// one host, or hosts have unequal numbers of ranks.
	Across *collective.Comm
	// FSDP says that each host holds a part of the dense weights and of their gradients. It needs
	// Across and means nothing without it.
	FSDP bool
	// Cut returns the lengths of the slices of a unit that FSDP gives ranks, or nil for even
	// slices. A nil Cut makes all of them even.
	Cut func(unit []*Param, ranks int) []int
	// EP has the ranks that hold each routed expert once. Tokens are exchanged among them.
	EP *collective.Comm
	// Replicas has the ranks with the same experts as this one, in the order of World; nil: no
	// other rank has them.
	Replicas *collective.Comm
	// ReplicasHost has those of Replicas on this host; nil: all of them are, or this rank alone is.
	ReplicasHost *collective.Comm
	// ReplicasAcross has those with the same place in ReplicasHost, in the order of World; nil:
	// hosts have unequal numbers of them, or one each.
	ReplicasAcross *collective.Comm
	// Sequence has the ranks that share each sequence of this one, those of cp · tp, in its order;
	// nil: none do.
	Sequence *collective.Comm
	// SequenceHost has those of Sequence on this host; nil: all of them are.
	SequenceHost *collective.Comm
	// TP has the ranks of this host that divide the products of dense layers with this one; nil:
	// none do.
	TP *collective.Comm
	// Operands has the ranks of World, for what they agree on before they quantize. That may be
	// while World exchanges tokens. A model creates it if its precision needs it; nil: it does not.
	Operands *collective.Comm
	// ExchangeHost has the ranks of a host in an exchange over several hosts, in a dry run; nil:
	// the exchange counts in EP.
	ExchangeHost *collective.Comm
}

// OneGroup returns the mesh in which all ranks of c exchange tokens and no expert has a replica.
// Ranks of several hosts share nothing.
func OneGroup(c *collective.Comm) Mesh {
	return Mesh{Layout: mesh.Default(c.Size()), World: c, EP: c}
}

// NewMesh divides the ranks of c according to a legal layout of them. It is collective.
func NewMesh(c *collective.Comm, l mesh.Layout) (Mesh, error) {
	switch {
	case l.World != c.Size():
		return Mesh{}, fmt.Errorf("a layout of %d ranks is not one of %d", l.World, c.Size())
	case l.Replicas() == 1 && l.Sharers() < 2:
		l = mesh.Default(c.Size())
	}
	var on []int
	for _, ranks := range c.Hosts() {
		on = append(on, len(ranks))
	}
	if err := CheckSharers(l, on); err != nil {
		return Mesh{}, err
	}
	return divide(c, l, func(of *collective.Comm, ranks []int) (*collective.Comm, error) {
		return of.Split(ranks[0], c.Rank())
	})
}

// divide finds with which ranks one shares what. split returns the communicator of some ranks,
// which are numbered as in c, of another one.
func divide(c *collective.Comm, l mesh.Layout, split func(of *collective.Comm, ranks []int) (*collective.Comm, error)) (m Mesh, err error) {
	m = Mesh{Layout: l, World: c, EP: c}
	sub := func(to **collective.Comm, of *collective.Comm, ranks []int) {
		if err == nil {
			*to, err = split(of, ranks)
		}
	}
	hosts := c.Hosts()
	here := hosts[c.Host()]
	if len(hosts) > 1 && equalHosts(c) != nil {
		if len(here) > 1 || l.Sharers() > 1 {
			sub(&m.Host, c, here)
		}
		sub(&m.Across, c, column(hosts, slices.Index(here, c.Rank())))
	}
	if l.Sharers() > 1 {
		sub(&m.Sequence, c, l.Group(c.Rank(), mesh.CP, mesh.TP))
		if err == nil && len(m.Sequence.Hosts()) > 1 {
			sub(&m.SequenceHost, c, here)
		}
		if tp := m.tensorGroup(); len(tp) > 1 { // on all hosts, or on none
			sub(&m.TP, c, tp)
		}
	}
	if l.Replicas() == 1 {
		return m, err
	}
	replicas := l.ExpertReplicas(c.Rank())
	sub(&m.EP, c, l.EPGroup(c.Rank()))
	sub(&m.Replicas, c, replicas)
	if err != nil || len(m.Replicas.Hosts()) == 1 {
		return m, err
	}
	var near *collective.Comm
	sub(&near, m.Replicas, pick(replicas, m.Replicas.Hosts()[m.Replicas.Host()]))
	if err != nil || near.Size() == 1 {
		return m, err
	}
	if m.ReplicasHost = near; equalHosts(m.Replicas) != nil {
		sub(&m.ReplicasAcross, m.Replicas, pick(replicas, column(m.Replicas.Hosts(), near.Rank())))
	}
	return m, err
}

// column returns the ranks at one place of each host.
func column(hosts [][]int, place int) (ranks []int) {
	for _, host := range hosts {
		ranks = append(ranks, host[place])
	}
	return ranks
}

// equalHosts returns the ranks of a communicator by host if hosts have equal numbers of them, and
// nil otherwise.
func equalHosts(c *collective.Comm) [][]int {
	hosts := c.Hosts()
	if slices.ContainsFunc(hosts, func(ranks []int) bool { return len(ranks) != len(hosts[0]) }) {
		return nil
	}
	return hosts
}

// CheckSharers returns an error if ranks cannot share sequences in a layout of a stage, on hosts
// with these numbers of its ranks.
func CheckSharers(l mesh.Layout, on []int) error {
	n, each := l.Sharers(), on[0]
	switch {
	case n == 1 || len(on) == 1:
	case slices.Min(on) != slices.Max(on):
		return fmt.Errorf("%s is %d, and hosts have unequal numbers of ranks, %v: ranks share sequences on equal hosts: give each host as many", l.SharersName(), n, on)
	case each%n != 0 && n%each != 0:
		return fmt.Errorf("%s is %d, and hosts have %d ranks each: one must divide the other", l.SharersName(), n, each)
	}
	return nil
}

// Comms yields the communicators of the mesh, each once.
func (m Mesh) Comms(yield func(*collective.Comm) bool) {
	all := [...]*collective.Comm{m.World, m.Host, m.Across, m.EP, m.Replicas, m.ReplicasHost, m.ReplicasAcross, m.Sequence, m.SequenceHost, m.TP, m.Operands, m.ExchangeHost}
	if m.EP == m.World {
		all[3] = nil
	}
	for _, c := range all {
		if c != nil && !yield(c) {
			return
		}
	}
}

// pick returns the elements of a list with some indices.
func pick(list, indices []int) (some []int) {
	for _, i := range indices {
		some = append(some, list[i])
	}
	return some
}

func everyRank(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
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

// agree creates Operands if the precision needs it and there are other ranks. It is collective.
func (m *Mesh) agree(p Precision) (err error) {
	if m.Operands == nil && m.World.Size() > 1 && (p.scalesTensors() || p.draws()) {
		m.Operands, err = m.World.Split(0, m.World.Rank())
	}
	return err
}

// tensorGroup returns the ranks of this host with which a rank divides products.
func (m Mesh) tensorGroup() (here []int) {
	for _, rank := range m.Layout.Group(m.World.Rank(), mesh.TP) {
		if m.World.HostOf(rank) == m.World.Host() {
			here = append(here, rank)
		}
	}
	return here
}
