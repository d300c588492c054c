package moe

// Dry runs: the layers of a rank without memory and without arithmetic. They tell what a rank
// holds, and what it moves, because the code that allocates and moves is the code that counts.

import (
	"errors"
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// DryMesh returns the mesh of a rank of a layout whose other ranks do not exist, on some hosts with
// equal numbers of ranks.
func DryMesh(l mesh.Layout, hosts, rank int) Mesh {
	comm := func(ranks []int) *collective.Comm { return dryComm(ranks, l.World, hosts, rank) }
	m, _ := divide(comm(everyRank(l.World)), l, func(_ *collective.Comm, ranks []int) (*collective.Comm, error) { return comm(ranks), nil })
	m.Operands = comm(everyRank(l.World))
	return m
}

// DryWorld returns a rank's end of the communicator of all n ranks on some hosts.
func DryWorld(n, hosts, rank int) *collective.Comm { return dryComm(everyRank(n), n, hosts, rank) }

// dryComm returns the end of a rank of the communicator of some of n ranks on some hosts.
func dryComm(ranks []int, n, hosts, rank int) *collective.Comm {
	host := func(r int) int { return r * hosts / n }
	var on [][]int
	for i, r := range ranks {
		if i == 0 || host(r) != host(ranks[i-1]) {
			on = append(on, nil)
		}
		on[len(on)-1] = append(on[len(on)-1], i)
	}
	return collective.NewDry(on, slices.Index(ranks, rank))
}

// DryRun is a stage of a model on a rank that has no memory.
type DryRun struct {
	*Model
	Ex *tensor.Exec
}

// NewDryRun builds a stage on a mesh from [DryMesh]. Experts receive equally many rows. With once,
// layers of one kind are built once, and what their passes hold and move counts as often as there
// are layers of that kind. The model's parameters are then those of a shorter model.
func NewDryRun(on Mesh, cfg Config, p Precision, seq int, options ep.Options, stage Stage, once bool) (*DryRun, error) {
	if e := on.EP.Size(); cfg.MoELayers() > 0 && cfg.Experts%e != 0 {
		return nil, fmt.Errorf("%d experts on %d ranks", cfg.Experts, e)
	}
	b := newBuilder(p, on)
	b.memory, b.dry = tensor.DryMemory{}, tensor.NewDryExec()
	if once {
		b.times = cfg.kinds(p, stage)
	}
	var exchange ep.Exchange
	if cfg.MoELayers() > 0 {
		dry := ep.NewDry(on.EP, cfg.Experts, options)
		if on.Replicas != nil {
			if err := dry.Replicate(on.World); err != nil {
				return nil, err
			}
		}
		if exchange = dry; dry.Host() != on.EP {
			on.ExchangeHost = dry.Host()
		}
	}
	m, err := build(b, on, cfg, seq, exchange, stage)
	if err != nil {
		return nil, err
	}
	return &DryRun{m, b.dry}, nil
}

// kinds returns the layers of a stage that are the first of their kind, and how many are of it.
// They have the same parts, in the same formats.
func (c Config) kinds(p Precision, s Stage) map[int]int {
	type kind struct {
		layerKinds
		recipes [4]Recipe
	}
	first, times := map[kind]int{}, map[int]int{}
	for i := s.First; i < s.End; i++ {
		k := kind{layerKinds: c.layer(i)}
		for n, part := range [...]Part{Projections, Dense, Shared, Routed} {
			if r := p.of(part, i, c.Layers); r != nil {
				k.recipes[n] = *r
			}
		}
		if _, known := first[k]; !known {
			first[k] = i
		}
		times[first[k]]++
	}
	return times
}

// Step makes passes of a step, each over a number of sequences of seq tokens. A pass is split if
// its weights' gradients are computed apart: see [Pass.BackwardInput]. Step calls beforeLast before
// the last pass.
func (d *DryRun) Step(passes []int, seq int, split bool, beforeLast func()) error {
	for i, sequences := range passes {
		if i == len(passes)-1 {
			beforeLast()
		}
		ids := tensor.NewDry(tensor.INT32, sequences*seq).I32()
		b := Batch{
			Inputs:          ids,
			Targets:         ids,
			Seq:             seq,
			GlobalSequences: 1,
			More:            i < len(passes)-1,
		}
		row := tensor.NewDry(d.precision.DType, d.PassTokens(b, true), d.Config.ResidualDim())
		p, err := d.ForwardStage(d.Ex, b, i, Boundary{row, row, row})
		if err != nil {
			return err
		}
		if !d.stage.Predict {
			p.SetGradient(d.Ex, p.Output())
		}
		backward := p.BackwardLayers
		if split {
			backward = p.BackwardInput
		}
		if err := errors.Join(backward(d.Ex), p.BackwardWeight(d.Ex)); err != nil {
			return err
		}
	}
	return nil
}

// PassMemory holds the bytes that passes of one rank need at once. Experts are assumed to receive
// equally many rows.
type PassMemory struct {
	Saved   map[PartKey]float64 // from the forward pass of a part to its backward pass, or longer
	Rows    float64             // rows of routed experts that passes leave to a later one's gradient
	Scratch float64             // the most that is in the arena of the rank's Exec at once
	Peak    PartKey             // the part that needs most scratch memory
	Packing float64             // the packing buffers of one thread
	Helping float64             // the arena of a thread that helps another one
}

// AllSaved returns the bytes that are saved for all parts.
func (m PassMemory) AllSaved() (sum float64) {
	for _, bytes := range m.Saved {
		sum += bytes
	}
	return sum
}

// Most returns the memory of a rank with two stages, for a pass of the one that saves more.
func (m PassMemory) Most(o PassMemory) PassMemory {
	if o.AllSaved() > m.AllSaved() {
		m.Saved = o.Saved
	}
	if o.Scratch > m.Scratch {
		m.Scratch, m.Peak = o.Scratch, o.Peak
	}
	m.Rows += o.Rows
	m.Packing, m.Helping = max(m.Packing, o.Packing), max(m.Helping, o.Helping)
	return m
}

// PassMemory returns what the passes so far have held at once.
func (d *DryRun) PassMemory(seq int) PassMemory {
	m := PassMemory{
		Saved:   map[PartKey]float64{},
		Rows:    float64(d.sums.rows.bytes()),
		Scratch: float64(d.Ex.Peak()),
		Packing: d.Ex.PackingBytes(),
	}
	for _, a := range d.arenas.all {
		most, _ := a.Labels()
		for label, n := range most {
			m.Saved[parseLabel(label)] += float64(n)
		}
	}
	_, peak := d.Ex.Labels()
	m.Peak = parseLabel(peak)
	shape := d.Config.layer(0).attention.shape()
	shape.Seq = seq
	m.Helping = float64(tensor.HelpingScratch(shape, d.precision.DType))
	if c := d.Config; c.choosesKeys() {
		index := tensor.AttentionShape{Seq: seq, Heads: c.IndexHeads, KeyDim: c.IndexDim}
		m.Helping = max(m.Helping, float64(tensor.IndexScratch(index, shape, d.precision.DType)))
	}
	return m
}

// Held yields the bytes of weights, with their quantized forms, and of gradients that a rank holds
// of each part of the model, with those of buffers under an empty key. Of what ranks of a host
// share, it has an equal share.
func (m *Model) Held(yield func(part PartKey, weights, gradients float64)) {
	for _, g := range m.Groups {
		g.held(m.Config.Layers, yield)
	}
}

func (g *Group) held(layers int, yield func(part PartKey, weights, gradients float64)) {
	sharers, share := 1.0, 1.0
	if g.host != nil {
		sharers = float64(g.host.comm.Size())
	}
	if g.Shared {
		share = sharers
	}
	size := float64(g.Work.DType().Size())
	whole := float64(g.Len()) / float64(max(g.ParamLen(), 1)) // of a sharded group, a part
	for _, p := range g.Params {
		n := float64(p.Len()) * whole / share
		yield(p.Part, size*n, 4*n)
	}
	if s := g.sharded; s != nil {
		quantized := 0
		for _, u := range s.units {
			quantized = max(quantized, formBytes(u.quantized))
		}
		yield(PartKey{}, (size*float64(s.work.Len())+float64(quantized))/sharers, 4*float64(s.grad.Len())/sharers)
	} else {
		for _, l := range g.quantized {
			yield(PartKey{l.part, l.mx.identity.layer >= layers}, float64(formBytes([]*linear{l}))/share, 0)
		}
	}
	g.heldPasses(share, yield)
}

// heldPasses yields the bytes of sums over passes that are not in Grad.
func (g *Group) heldPasses(share float64, yield func(part PartKey, weights, gradients float64)) {
	at, copies := 0, map[int]int{} // of each parameter
	rest := g.PassBytes()          // of sums that belong to no weight
	for _, w := range g.weights {
		all := w.passes.copies()
		copies[w.at] = len(all)
		for _, sum := range all {
			rest -= len(sum.Bytes())
		}
	}
	last := 0
	for _, p := range g.Params {
		if n, begins := copies[at]; begins {
			last = n
		}
		if at += p.Len(); last > 0 {
			yield(p.Part, 0, 4*float64(last*p.Len())/share)
		}
	}
	if rest > 0 {
		yield(g.Params[0].Part, 0, float64(rest))
	}
}

// formBytes returns the bytes of the quantized forms of weights.
func formBytes(layers []*linear) (sum int) {
	for _, l := range layers {
		all := l.mx.weights(l.W)
		for _, t := range all[:quantizedParts] {
			sum += len(t.Bytes())
		}
	}
	return sum
}

// SumPasses makes the sums of all passes of a step except the last: see [Group.Divide]. passes has
// the sequences of each.
func (d *DryRun) SumPasses(passes []int) error {
	p := phase{passState: &passState{batch: Batch{More: true, Seq: 1}, chains: d.ChainPasses}, ex: d.Ex}
	most := tensor.NewDry(tensor.INT32, passes[0]).I32()
	for _, sequences := range passes[:len(passes)-1] {
		p.batch.Inputs = most[:sequences]
		for _, g := range d.Groups {
			for _, w := range g.weights {
				w.nextGrad(p)
				p.pushGrad(w)
			}
			for i := range g.sharded.all() {
				u := &g.sharded.units[i]
				u.passes.next(d.Ex, p.size(), p.completes())
				u.passes.push(d.Ex, p.completes())
				for _, w := range u.weights {
					w.passes.restart()
				}
			}
		}
		if err := d.sums.sumPass(p); err != nil {
			return err
		}
	}
	return nil
}
