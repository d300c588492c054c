package estimate

// The bytes that a layout moves per step, from a dry run. Communicators of a real run count the
// same bytes: see collective.Stats.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// Movement is what calls of one kind on one communicator of the mesh move in a step.
type Movement struct {
	Name string          `json:"name"` // "dispatch over ep"
	Kind collective.Kind `json:"-"`
	Moved
}

// Gradients reports whether it sums gradients, or reads their operands.
func (m Movement) Gradients() bool {
	shared := strings.HasSuffix(m.Name, string(mesh.CP)) || strings.HasSuffix(m.Name, string(mesh.TP))
	return m.Kind == collective.KindBuffers && !shared || m.Kind == collective.KindReduceScatter
}

// replicas is the name of the communicator of ranks with the same experts.
const replicas = "replicas"

// Moved holds bytes per rank, by link: the mean of all ranks.
type Moved struct {
	Memory  float64 `json:"memory_bytes"`  // within hosts, the rank's own memory included
	Peers   float64 `json:"peer_bytes"`    // of Memory, what is in the memory of other ranks
	Network float64 `json:"network_bytes"` // sent to other hosts
}

// Plus adds bytes link by link.
func (m Moved) Plus(o Moved) Moved {
	return Moved{m.Memory + o.Memory, m.Peers + o.Peers, m.Network + o.Network}
}

// times multiplies bytes.
func (m Moved) times(by float64) Moved { return Moved{by * m.Memory, by * m.Peers, by * m.Network} }

// movements lists what a rank moves, each name once.
type movements []Movement

// plus adds bytes to those of the same name.
func (all *movements) plus(m Movement) {
	for i := range *all {
		if one := &(*all)[i]; one.Name == m.Name {
			one.Moved = one.Plus(m.Moved)
			return
		}
	}
	*all = append(*all, m)
}

// away returns the share of n equal parts that is not the rank's own.
func away(n int) float64 { return float64(n-1) / float64(n) }

// add adds what the communicators of a mesh have counted.
func (all *movements) add(m moe.Mesh, times float64) {
	names := map[*collective.Comm]string{m.Host: "the host", m.Across: "hosts", m.EP: "ep", m.Replicas: replicas, m.ReplicasHost: replicas, m.ReplicasAcross: replicas,
		m.Sequence: m.Layout.SharersName(), m.SequenceHost: m.Layout.SharersName(), m.TP: string(mesh.TP), m.Operands: "operands",
		m.ExchangeHost: "ep of the host", m.World: "all ranks"}
	for c := range m.Comms {
		all.addComm(c, names[c], times)
	}
}

// addComm adds what a communicator has counted.
func (all *movements) addComm(c *collective.Comm, name string, times float64) {
	peers := away(len(c.Hosts()[c.Host()]))
	for kind, s := range c.Stats() {
		if k := collective.Kind(kind); s.Bytes > 0 {
			bytes := times * float64(s.Bytes)
			all.plus(Movement{fmt.Sprintf("%v over %s", k, name), k, Moved{Memory: bytes, Peers: peers * bytes}})
		}
	}
	if sent := c.Sent(); sent > 0 {
		all.plus(Movement{"to other hosts, " + name, collective.KindBarrier, Moved{Network: times * float64(sent)}})
	}
}

// LayoutTraffic returns what each rank of a layout moves per step, if the ranks are on some hosts
// in equal numbers. It is that of the one-sided exchange without a capacity and with equally many
// rows for every expert. It leaves out the guards, saves and evaluations. It returns an error if a
// stage or an ep group covers hosts unevenly.
func LayoutTraffic(c config.Config, l mesh.Layout, hosts int) ([]Movement, error) {
	c.SetLayout(l)
	all, err := Holdings(c, l.World)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	stage := l.Stage()
	if hosts < 1 || l.World%hosts != 0 {
		return nil, fmt.Errorf("%d hosts do not divide %d ranks", hosts, l.World)
	}
	perHost := l.World / hosts
	if perHost%stage.World != 0 && stage.World%perHost != 0 {
		return nil, fmt.Errorf("%v: the %d ranks of a host and the %d of a stage must divide one another", l, perHost, stage.World)
	}
	if onHost := min(perHost, stage.World); c.Model.MoELayers() > 0 && stage.EP%onHost != 0 && onHost%stage.EP != 0 {
		return nil, fmt.Errorf("%v: the %d ranks of a host and ep must divide one another", stage, onHost)
	}
	ranks := countedRanks(stage, stage.World*len(all), perHost)
	var sum movements
	for _, h := range all {
		for _, rank := range ranks {
			d, err := NewDryRank(c, stage, stageHosts(l.World, stage.World, hosts), rank)
			if err != nil {
				return nil, err
			}
			if hosts > 1 && l.PP > 1 { // otherwise they make no difference
				d.whole, d.allHosts, d.place = l, hosts, h.place
			}
			moved, err := d.moved(h)
			if err != nil {
				return nil, err
			}
			for _, m := range moved {
				m.Moved = m.times(1 / float64(len(ranks)*len(all)))
				sum.plus(m)
			}
		}
		if h.plan != nil && l.PP > 1 && h.place == 0 {
			sum.addMessages(c, h.plan, l, hosts)
		}
	}
	slices.SortFunc(sum, func(a, b Movement) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Name, b.Name))
	})
	return sum, nil
}

// addMessages adds the messages between the stages of a layout. One to another host has a byte
// more, because the network does not carry an empty one.
func (all *movements) addMessages(c config.Config, plan *pipe.Plan, l mesh.Layout, hosts int) {
	perHost := l.World / hosts
	host := func(place int) int { return place * l.StageRanks() / perHost }
	count := func(counts func(from, to int) bool) float64 {
		return float64(plan.MessagesBetween(counts)) / float64(l.PP)
	}
	bytes := float64(MessageBytes(c, l.World))
	local := bytes * count(func(from, to int) bool { return host(from) == host(to) })
	everywhere := bytes * count(func(int, int) bool { return true })
	all.plus(Movement{"messages between stages", collective.KindMessage, Moved{
		Memory: everywhere, Peers: local,
		Network: (bytes + 1) * count(func(from, to int) bool { return host(from) != host(to) }),
	}})
}

// mostCounted is the largest number of ranks that are counted one by one.
const mostCounted = 16

// countedRanks returns the ranks of a stage that stand for all: all of few. Of many, the first one
// does, or the first on each host that shares its sequences, because these send different sums.
func countedRanks(stage mesh.Layout, all, perHost int) (ranks []int) {
	last, step := 0, 1
	switch {
	case all <= mostCounted:
		last = stage.World - 1
	case stage.Sharers() > perHost:
		last, step = stage.Sharers()-1, perHost
	}
	for rank := 0; rank <= last; rank += step {
		ranks = append(ranks, rank)
	}
	return ranks
}

// moved returns what a rank with some stages moves.
func (d dryRank) moved(h holding) (all movements, err error) {
	state, err := d.knownState(h.stages)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(state.moved)
	for _, stage := range h.stages {
		passes, err := d.KnownPasses(stage)
		if err != nil {
			return nil, err
		}
		for _, m := range passes.moved {
			all.plus(m)
		}
	}
	return all, nil
}
