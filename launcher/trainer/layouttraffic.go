package trainer

// The bytes that a layout moves per step, from the configuration. Communicators count the same
// bytes: see collective.Stats.

import (
	"fmt"

	"spmoe/bench/projection/hosts"
	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/pipe"
	"spmoe/mx"
	"spmoe/tensor/exact"
)

// Movement is one kind of data that ranks move in a step.
type Movement struct {
	Name string          `json:"name"`
	Kind collective.Kind `json:"-"` // of the calls that move it
	Moved
}

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

// LayoutTraffic returns what each rank of a layout moves per step, if the ranks are on some hosts
// in equal numbers. It is that of the one-sided exchange without a capacity. It leaves out the
// guards, saves and evaluations. The bytes between hosts assume uniform routing. It returns an
// error if an ep group covers hosts unevenly.
func (c Config) LayoutTraffic(l mesh.Layout, onHosts int) ([]Movement, error) {
	t, err := c.newLayoutTraffic(l, onHosts)
	if err != nil {
		return nil, err
	}
	all := append(t.exchange(), t.gradients()...)
	all = append(all, t.weights())
	for i := range all {
		all[i].Moved = all[i].Moved.shared(l.PP) // each rank has a part of the layers
	}
	all = append(all, t.sum("router loads", 8*t.Model.MoELayers()*t.Model.Experts),
		t.sum("gradient norm", 8*len(exact.Sum{})), t.sum("loss", 8*totalsNumbers))
	if l.PP > 1 {
		all = append(all, t.messages(l.PP))
	}
	for _, m := range t.sent {
		t.addSent(&all, m)
	}
	return all, nil
}

// shared returns the mean of n ranks that together move m.
func (m Moved) shared(n int) Moved {
	by := float64(n)
	return Moved{m.Memory / by, m.Peers / by, m.Network / by}
}

// layoutTraffic computes movements. Config and layout are those of the ranks of a stage.
type layoutTraffic struct {
	Config
	layout    mesh.Layout
	world     int // all ranks
	stages    []moe.Stage
	plan      *pipe.Plan // nil: there is no pipeline
	hosts     int
	epHosts   int // of an ep group
	precision moe.Precision
	options   ep.Options
	forward   int            // forward passes per pass, including recomputation
	sharers   int            // ranks that share the dense weights and their gradients
	sent      []hosts.Motion // between hosts
}

func (c Config) newLayoutTraffic(l mesh.Layout, onHosts int) (t layoutTraffic, err error) {
	t = layoutTraffic{layout: l.Stage(), world: l.World, hosts: onHosts, epHosts: 1, forward: 1}
	c.SetLayout(l)
	holdings, err := c.holdings(l.World)
	if err != nil {
		return t, fmt.Errorf("%v: %w", l, err)
	}
	for _, h := range holdings {
		t.plan = h.plan
		for _, stage := range h.stages {
			t.stages = append(t.stages, stage)
		}
	}
	c.SetLayout(t.layout)
	t.Config = c
	l = t.layout
	if t.precision, err = c.Recipe(); err != nil {
		return t, err
	}
	if t.options, err = c.exchange(); err != nil {
		return t, err
	}
	if c.Recompute == moe.RecomputeFull.String() {
		t.forward = 2
	}
	if onHosts < 1 || l.World%onHosts != 0 {
		return t, fmt.Errorf("%d hosts do not divide %d ranks", onHosts, l.World)
	}
	perHost := l.World / onHosts
	t.sharers = perHost
	if c.Model.MoELayers() > 0 {
		if l.EP%perHost != 0 && perHost%l.EP != 0 {
			return t, fmt.Errorf("%v: the %d ranks of a host and ep must divide one another", l, perHost)
		}
		t.epHosts = max(l.EP/perHost, 1)
	}
	if onHosts > 1 {
		r := hosts.Recipe{
			Model: c.Model, Precision: t.precision, Ranks: perHost, Seq: c.Seq, Batch: c.Batch, Strong: true,
			MicroBatch: c.MicroBatch, Rule: c.rule(), Wire: t.options.Dispatch,
		}
		t.sent, err = r.Sent(onHosts, t.epHosts)
	}
	return t, err
}

// away returns the share of n equal parts that is not the rank's own.
func away(n int) float64 { return float64(n-1) / float64(n) }

// exchange lists the movements of tokens. Each choice of an expert moves one row.
//
//	token counts: int32 [ranks, experts] per layer and pass
//	dispatch: rows on the wire;  combine, dispatch backward: rows
//	combine backward: rows on the wire, and rows that are read for the gradients of their weights
func (t layoutTraffic) exchange() []Movement {
	layers, m := float64(t.Model.MoELayers()), t.Model
	if layers == 0 {
		return nil
	}
	tokens := float64(t.Batch / t.layout.Batch() * t.Seq)
	rows := layers * tokens * float64(m.TopK) / float64(t.epHosts) // on this host
	passes := t.passes(t.layout.World)
	row := float64(m.Dim * t.precision.DType.Size())
	peers := away(min(t.layout.EP, t.layout.World/t.hosts))
	move := func(name string, kind collective.Kind, bytes float64) Movement {
		return Movement{name, kind, Moved{Memory: bytes, Peers: peers * bytes}}
	}
	counts := t.all("token counts", collective.KindAllGather, layers*float64(t.forward*passes*4*t.layout.World*m.Experts))
	return []Movement{
		counts,
		move("dispatch", collective.KindDispatch, float64(t.forward)*rows*t.wireRow(t.options.Dispatch)),
		move("combine", collective.KindCombine, float64(t.forward)*rows*row),
		move("combine backward", collective.KindDispatch, rows*(t.wireRow(t.options.CombineBackward)+row)),
		move("dispatch backward", collective.KindCombine, rows*row),
	}
}

// wireRow returns the bytes of a row on the wire.
func (t layoutTraffic) wireRow(wire ep.Wire) float64 {
	if wire == ep.MXFP8 {
		return float64(t.Model.Dim + mx.E4M3.BlocksIn(t.Model.Dim))
	}
	return float64(t.Model.Dim * t.precision.DType.Size())
}

// all returns a movement whose data is spread evenly over all ranks.
func (t layoutTraffic) all(name string, kind collective.Kind, bytes float64) Movement {
	return Movement{name, kind, Moved{Memory: bytes, Peers: away(t.layout.World/t.hosts) * bytes}}
}

// sum returns the movement of a short vector that all ranks sum, those of all stages.
func (t layoutTraffic) sum(name string, bytes int) Movement {
	all := float64(bytes)
	return Movement{name, collective.KindAllReduce, Moved{Memory: all, Peers: away(t.world/t.hosts) * all}}
}

// messages is the movement of activations and their gradients between stages on different ranks of
// a pipeline.
func (t layoutTraffic) messages(ranks int) Movement {
	bytes := float64(t.plan.Messages()*t.messageBytes(t.layout.World)) / float64(ranks)
	return Movement{"messages", collective.KindMessage, Moved{Memory: bytes, Peers: bytes}}
}

// replicated returns the lengths of the groups of weights that all ranks of a stage have, of all
// stages: norms and routers, and matrices.
func (t layoutTraffic) replicated() (norms, matrices int64) {
	for _, stage := range t.stages {
		n, m := t.Model.ReplicatedElements(stage)
		norms, matrices = norms+n, matrices+m
	}
	return norms, matrices
}

// gradients lists the movements of gradients. Ranks that share weights read the operands of their
// gradients. In each pass, all ranks reduce-scatter those of norms and routers, and each rank its
// part of what its host has of the others. The gradients of experts move only between replicas.
func (t layoutTraffic) gradients() (all []Movement) {
	norms, matrices := t.replicated()
	if t.sharers > 1 {
		tokens := float64(t.Batch * t.Seq / t.layout.World)
		all = append(all, t.all("gradient operands", collective.KindBuffers, tokens*t.Model.GradientReads(t.precision, t.sharers)))
	}
	sums := float64(norms)
	switch {
	case t.fsdp():
		params, _ := t.units()
		sums += params / float64(t.sharers)
	case t.hosts > 1 || t.sharers == 1:
		sums += float64(matrices) / float64(t.sharers)
	}
	if t.layout.World > 1 {
		sums *= float64(t.passes(t.layout.World))
	}
	all = append(all, t.all("gradients", collective.KindReduceScatter, 4*sums))
	if t.layout.Replicas() > 1 && t.Model.MoELayers() > 0 {
		all = append(all, t.expertGradients())
	}
	return all
}

// expertGradients is the movement of the gradients of experts over their replicas: of operands on
// one host, of sums between hosts.
func (t layoutTraffic) expertGradients() Movement {
	m := Movement{Name: expertGradients, Kind: collective.KindBuffers}
	if t.hosts == 1 {
		m.Memory = float64(t.Batch*t.Seq/t.layout.World) * t.Model.ExpertGradientReads(t.precision)
	} else {
		m.Kind, m.Moved = collective.KindReduceScatter, t.ofExperts(4)
	}
	m.Peers = away(max(t.layout.Replicas()/t.hosts, 1)) * m.Memory
	return m
}

const expertGradients = "expert gradients"

// ofExperts returns what replicas on several hosts move if they reduce-scatter or all-gather size
// bytes per parameter of their experts.
func (t layoutTraffic) ofExperts(size int) Moved {
	bytes := float64(size) * float64(t.Model.Count().Routed)
	perHost := float64(t.layout.World / t.hosts)
	return Moved{Memory: bytes / float64(t.layout.EP), Network: away(t.hosts/t.epHosts) * bytes / float64(t.epHosts) / perHost}
}

// weights is the movement of updated weights: norms and routers, which each rank has, and those
// that others update on other hosts. With FSDP the latter are gathered in every pass.
func (t layoutTraffic) weights() Movement {
	norms, matrices := t.replicated()
	bytes, size := 4*float64(norms), t.precision.DType.Size()
	switch {
	case t.hosts == 1 && t.sharers > 1:
		return t.all("weights", collective.KindAllGatherV, bytes)
	case t.fsdp():
		_, gathered := t.units()
		return t.all("weights", collective.KindAllGatherV, bytes+float64(size*t.passes(t.layout.World))*gathered/float64(t.sharers))
	}
	m := t.all("weights", collective.KindAllGatherV, bytes+float64(size)*float64(matrices)/float64(t.sharers))
	if t.layout.Replicas() > 1 && t.Model.MoELayers() > 0 {
		m.Moved = m.Plus(t.ofExperts(size))
	}
	return m
}

// fsdp reports whether the dense weights are sharded over hosts.
func (t layoutTraffic) fsdp() bool { return t.FSDP && t.hosts > 1 }

// units returns the parameters of all units of the dense weights, and those that a pass gathers.
func (t layoutTraffic) units() (params, gathered float64) {
	for _, u := range t.Model.DenseUnits() {
		params += float64(u.Params)
		gathered += float64(u.Gathers) * float64(u.Params)
	}
	return params, gathered
}

// addSent adds what a host sends to the movement of the same name. [layoutTraffic.ofExperts] counts
// what replicas of experts send: their state is sharded, unlike that of a projection.
func (t layoutTraffic) addSent(all *[]Movement, m hosts.Motion) {
	if m.Name == expertGradients {
		return
	}
	if m.Name == "token counts" || m.Name == "dispatch" || m.Name == "combine" {
		m.Times *= t.forward
	}
	bytes := float64(m.Times) * m.Bytes / float64(t.sharers)
	if m.Name == "weights" && t.fsdp() {
		params, gathered := t.units() // params are in bytes already
		more := float64(t.passes(t.layout.World))*gathered - params
		bytes += away(t.hosts) * float64(t.precision.DType.Size()) * more / float64(t.sharers)
	}
	for i := range *all {
		if (*all)[i].Name == m.Name {
			(*all)[i].Network += bytes
			return
		}
	}
	*all = append(*all, Movement{Name: m.Name, Moved: Moved{Network: bytes}})
}
