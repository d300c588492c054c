package moe

// Passes in flight at once, and what they recompute: a step gives the same bits in whatever order
// its halves run, whether a block keeps its activations or computes them again.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// schedule is the calls of a step: F0 is the forward pass of batch 0, B0 its backward pass, I0 and
// W0 the two halves of that.
type schedule string

// inOrder runs pass after pass.
const inOrder = schedule("F0 B0 F1 B1 F2 B2")

var schedules = []schedule{
	"F0 I0 W0 F1 I1 W1 F2 B2",
	"F0 F1 B0 B1 F2 B2",
	"F0 F1 B1 B0 F2 B2",
	"F0 F1 I0 I1 W0 W1 F2 I2 W2",
	"F0 I0 F1 I1 W1 W0 F2 B2",
	"F0 F1 F2 B2 B0 B1",
	"F0 F1 F2 I2 I1 W1 B0 W2",
}

// passOutcome is what a step leaves behind on one rank.
type passOutcome struct {
	grads  map[string][]float32
	losses []Loss
	loads  [][]int64
}

// run makes a step.
func (s schedule) run(m *member, batch func(i int) Batch) (out passOutcome, err error) {
	m.model.ZeroGrad()
	for _, r := range m.model.Routings() {
		r.Reset()
	}
	var passes []*Pass
	for _, call := range strings.Fields(string(s)) {
		i := int(call[1] - '0')
		switch call[0] {
		case 'F':
			var p *Pass
			if p, err = m.model.Forward(m.ex, batch(i)); err == nil {
				passes, out.losses = append(passes, p), append(out.losses, p.Loss())
			}
		case 'B':
			err = passes[i].Backward(m.ex)
		case 'I':
			err = passes[i].BackwardInput(m.ex)
		case 'W':
			err = passes[i].BackwardWeight(m.ex)
		}
		if err != nil {
			return out, fmt.Errorf("%s of %s: %w", call, s, err)
		}
	}
	for _, r := range m.model.Routings() {
		out.loads = append(out.loads, slices.Clone(r.Load))
	}
	for _, g := range m.model.Groups {
		if g.sums != nil {
			err = errors.Join(err, g.SumGrad(m.ex))
		}
	}
	out.grads = m.gradients()
	return out, err
}

func (got passOutcome) equals(t *testing.T, what string, want passOutcome) {
	t.Helper()
	if !slices.Equal(got.losses, want.losses) {
		t.Errorf("%s: losses %+v, want %+v", what, got.losses, want.losses)
	}
	if !slices.EqualFunc(got.loads, want.loads, slices.Equal) {
		t.Errorf("%s: loads %v, want %v", what, got.loads, want.loads)
	}
	for name, g := range want.grads {
		if !slices.Equal(got.grads[name], g) {
			t.Errorf("%s: the gradient of %s is off by %.2g", what, name, distance(got.grads[name], g))
		}
	}
}

// divideEvenly makes passes sum the gradients of a group over its ranks.
func divideEvenly(g *Group) {
	counts := make([]int, g.Ranks.Size())
	for r := range counts {
		counts[r] = g.Len() / len(counts)
	}
	g.Divide(g.Ranks, Division{Counts: counts})
}

// interleaving is a model on some ranks, and what its steps do.
type interleaving struct {
	cfg       Config
	precision string
	exchange  string
	wire      ep.Options
	recompute Recompute
	ranks     int
	gathered  bool // rows of experts are kept from pass to pass
}

// check runs schedules on one model and compares them with pass after pass without recomputation.
func (c interleaving) check(t *testing.T, some []schedule) {
	t.Helper()
	const seq = 32
	sequences := [...]int{1, 2, 1} // of each pass and rank
	precision, err := PrecisionByName(c.precision)
	if err != nil {
		t.Fatal(err)
	}
	all := batchOf(41, 4*c.ranks, seq, c.cfg.Vocab)
	all.First = packed(4*c.ranks, seq)
	err = collective.NewWorld(c.ranks).Run(func(comm *collective.Comm) error {
		exchange, err := ep.New(c.exchange, comm, c.cfg.Experts, c.wire)
		if err != nil {
			return err
		}
		model, err := New(c.cfg, precision, seq, comm, exchange)
		if err != nil {
			return err
		}
		spread(model)
		m := &member{comm, tensor.NewExec(), model}
		m.ex.Poison = true // no pass may have left anything in scratch memory
		for _, g := range model.Groups {
			g.Refresh(m.ex)
			if g.Ranks != nil && !g.Shared {
				divideEvenly(g)
			}
		}
		batch := func(i int) Batch {
			first := 4 * comm.Rank()
			for _, n := range sequences[:i] {
				first += n
			}
			b := all.part(first, first+sequences[i])
			b.More = c.gathered && i+1 < len(sequences)
			return b
		}
		want, err := inOrder.run(m, batch)
		if err != nil {
			return err
		}
		model.Recompute = c.recompute
		for _, s := range append(some, inOrder) {
			got, err := s.run(m, batch)
			if err != nil {
				return err
			}
			if _, err := model.Eval(m.ex, batch(0)); err != nil { // between steps it changes nothing
				return err
			}
			got.equals(t, fmt.Sprintf("rank %d, %s", comm.Rank(), s), want)
		}
		if len(model.inFlight) > 0 || len(model.idle) != len(model.passes) || len(model.passes) > len(sequences) {
			t.Errorf("rank %d: %d passes in flight, %d of %d idle", comm.Rank(), len(model.inFlight), len(model.idle), len(model.passes))
		}
		if rows := &model.sums.rows; rows.Peak() > 0 != c.gathered || rows.Mark() != (tensor.Mark{}) {
			t.Errorf("rank %d: rows were kept %v, want %v, and none after the step", comm.Rank(), rows.Peak() > 0, c.gathered)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPassesInFlight(t *testing.T) {
	whole := with(quantizable(64, 64), func(c *Config) {
		grouped(c)
		c.TopK, c.BalanceAlpha, c.QRank = 3, 0.1, 32
	})
	plain := with(whole, func(c *Config) { c.MTPLayers, c.QRank, c.SharedExperts, c.ScoreFunc = 0, 0, 0, Softmax })
	deeper := with(whole, func(c *Config) { c.Layers, c.MTPLayers = 3, 0 }) // the last layer is in BF16
	dense := with(whole, func(c *Config) { c.DenseLayers, c.MTPLayers = 2, 0 })
	odd := with(quantizable(72, 40), func(c *Config) { c.TopK = 3 })
	queries, unnormed := with(whole, sharedKeys), with(spreadModel(), sharingKeys["no norms"])
	keys := with(whole, choosing)
	wire := ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8}
	for i, c := range []interleaving{
		{whole, "bf16", "onesided", ep.Options{}, RecomputeNone, 1, true},
		{whole, "bf16", "onesided", ep.Options{}, RecomputeSelective, 2, false},
		{whole, "bf16", "onesided", ep.Options{}, RecomputeFull, 4, true},
		{whole, "mxfp8", "onesided", ep.Options{}, RecomputeNone, 2, false},
		{whole, "mxfp8", "onesided", ep.Options{}, RecomputeSelective, 4, true},
		{whole, "mxfp8", "onesided", wire, RecomputeFull, 2, true},
		{whole, "mxfp8-wgrad-bf16", "onesided", wire, RecomputeSelective, 2, false},
		{plain, "fp32", "standard", ep.Options{}, RecomputeFull, 2, false},
		{whole, "mxfp8-experts", "standard", ep.Options{}, RecomputeSelective, 1, true},
		{deeper, "nvfp4", "onesided", ep.Options{}, RecomputeFull, 2, false},
		{odd, "mxfp8", "onesided", ep.Options{}, RecomputeFull, 1, false},
		{dense, "mxfp8", "onesided", ep.Options{}, RecomputeSelective, 2, false},
		{whole, "bf16", "onesided", ep.Options{Capacity: 0.75}, RecomputeFull, 2, false},
		{queries, "mxfp8", "onesided", ep.Options{}, RecomputeFull, 2, true},
		{queries, "fp32", "onesided", ep.Options{}, RecomputeSelective, 4, false},
		{unnormed, "bf16", "onesided", ep.Options{}, RecomputeFull, 1, false},
		{keys, "bf16", "onesided", ep.Options{}, RecomputeFull, 2, false},
		{keys, "mxfp8", "onesided", ep.Options{}, RecomputeSelective, 1, true},
	} {
		name := fmt.Sprintf("%s/%v/np%d/kv%d/index%d/%s/%+v/gathered %v", c.precision, c.recompute, c.ranks, c.cfg.KVHeads, c.cfg.IndexHeads, c.exchange, c.wire, c.gathered)
		some := schedules
		if i > 4 { // the others have every second schedule
			some = slices.DeleteFunc(slices.Clone(schedules), func(s schedule) bool { return slices.Index(schedules, s)%2 == i%2 })
		}
		t.Run(name, func(t *testing.T) { c.check(t, slices.Clip(some)) })
	}
}

// Passes that a step has left are ended by the next, which has the bits that it would have had.
func TestStepAfterOneThatWasGivenUp(t *testing.T) {
	m := alone(t, spreadModel(), tensor.BF16, 32)
	batch := func(i int) Batch { return batchOf(uint64(i), 1, 32, m.model.Config.Vocab) }
	want, err := inOrder.run(m, batch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := schedule("F0 F1 F2 I1 W1 I0").run(m, batch); err != nil {
		t.Fatal(err)
	}
	if n := len(m.model.inFlight); n != 3 {
		t.Errorf("%d passes are in flight, want 3: two wait for the first", n)
	}
	got, err := inOrder.run(m, batch)
	if err != nil {
		t.Fatal(err)
	}
	got.equals(t, "after passes without weight gradients", want)
	if len(m.model.inFlight) != 0 || len(m.model.idle) != 3 {
		t.Errorf("%d passes are in flight and %d idle", len(m.model.inFlight), len(m.model.idle))
	}
}
