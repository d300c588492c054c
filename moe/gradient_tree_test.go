package moe

// A training pass gives one result for 1, 2, 4 and 8 ranks, bit for bit: losses, and gradients when
// the ranks' are added up.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// summed is the loss and the gradients of all ranks' passes.
type summed struct {
	loss  Loss
	grads map[string][]float32
}

// trainedBy runs one pass over b on so many ranks and adds up what they have, experts' gradients
// aside.
func trainedBy(t *testing.T, cfg Config, precision, exchange string, b Batch, ranks, threads int) summed {
	t.Helper()
	return trainedWith(t, cfg, defaultOutputSizes(), precision, exchange, b, ranks, ranks, threads, 1)
}

// trainedWith is trainedBy with other sizes of the output's blocks, groups of some ranks that hold
// all experts, and several passes, which cover b one after the other.
func trainedWith(t *testing.T, cfg Config, sizes outputSizes, precision, exchange string, b Batch, ranks, group, threads, passes int) summed {
	t.Helper()
	return trainedOn(t, cfg, sizes, precision, exchange, b, mesh.Layout{World: ranks, PP: 1, DPReplicate: 1, DPShard: ranks, EP: group}, threads, passes)
}

// trainedOn is trainedWith in a layout.
func trainedOn(t *testing.T, cfg Config, sizes outputSizes, precision, exchange string, b Batch, l mesh.Layout, threads, passes int) summed {
	t.Helper()
	return trainedOnHosts(t, cfg, sizes, precision, exchange, b, l, 1, threads, passes)
}

// trainedOnHosts is trainedOn for ranks on some hosts. Experts have no replicas on other hosts.
func trainedOnHosts(t *testing.T, cfg Config, sizes outputSizes, precision, exchange string, b Batch, l mesh.Layout, hosts, threads, passes int) summed {
	t.Helper()
	ranks := l.World
	precision, sum, _ := strings.Cut(precision, " by ")
	options := DefaultOptions()
	options.Sum = cmp.Or(sum, options.Sum)
	p, err := options.Precision(precision)
	if err != nil {
		t.Fatal(err)
	}
	out := summed{grads: map[string][]float32{}}
	var mu sync.Mutex
	err = errors.Join(collective.NewHosts(slices.Repeat([]int{ranks / hosts}, hosts)...).Run(func(c *collective.Comm) error {
		on, err := NewMesh(c, l)
		if err != nil {
			return err
		}
		x, err := on.NewExchange(exchange, cfg.Experts, ep.Options{})
		if err != nil {
			return err
		}
		m, err := NewStage(on, cfg, p, b.Seq, x, cfg.Whole())
		if err != nil {
			return err
		}
		spread(m)
		head := &m.output.weight
		head.unit = sizes.unit(cfg.Vocab)
		m.output.sizes = sizes
		if head.rows = [2]int{0, cfg.Vocab}; m.host != nil {
			head.rows = m.host.divide(cfg.Vocab, head.unit)[m.host.comm.Rank()]
		}
		head.passes = newSumTree(head.own())
		ex := tensor.NewParallelExec(threads)
		defer ex.Close()
		for _, g := range m.Groups {
			g.Refresh(ex)
			if peers, division := evenDivision(g); peers != nil {
				g.Divide(peers, division)
			}
		}
		var loss Loss
		for i := range passes {
			n := b.GlobalSequences / passes
			reader := c.Rank() / l.Sharers()
			part := b.part(i*n+reader*n/l.Batch(), i*n+(reader+1)*n/l.Batch())
			part.More = i+1 < passes
			one, err := m.Train(ex, part)
			if err != nil {
				return err
			}
			loss.Add(one)
		}
		sums := []float64{loss.Sum, loss.Ahead, loss.Balance}
		if err := collective.AllReduce(c, sums, collective.Sum); err != nil {
			return err
		}
		for _, g := range m.Groups {
			peers, division := evenDivision(g)
			if peers == nil {
				continue
			}
			if err := g.SumGrad(ex); err != nil {
				return err
			}
			n, all := division.Counts[0], g.Grad.F32()[division.First:division.End()]
			if err := collective.AllGather(peers, all, slices.Clone(all[n*peers.Rank():][:n])); err != nil {
				return err
			}
		}
		if err := c.Barrier(); err != nil { // others complete what this host shares
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out.loss = Loss{Sum: sums[0], Ahead: sums[1], Balance: sums[2]}
		for _, param := range m.Params() {
			out.grads[param.Name] = slices.Clone(param.Grad.F32())
		}
		return nil
	})...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// evenDivision returns the ranks that sum a group's gradients, and their even shares; nil: there is
// nothing to sum.
func evenDivision(g *Group) (*collective.Comm, Division) {
	switch {
	case g.Ranks == nil || g.Shared && g.Across == nil:
		return nil, Division{}
	case !g.Shared:
		return g.Ranks, Division{Counts: slices.Repeat([]int{g.Len() / g.Ranks.Size()}, g.Ranks.Size())}
	}
	hosts, n := g.Across.Size(), g.Len()/g.Ranks.Size()
	return g.Across, Division{First: g.host.comm.Rank() * hosts * n, Counts: slices.Repeat([]int{n}, hosts)}
}

func (s summed) equals(t *testing.T, what string, want summed) {
	t.Helper()
	if s.loss != want.loss {
		t.Errorf("%s: losses %+v, want %+v", what, s.loss, want.loss)
	}
	if len(s.grads) != len(want.grads) {
		t.Errorf("%s: %d gradients, want %d", what, len(s.grads), len(want.grads))
	}
	for name, g := range want.grads {
		same := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
		if !slices.EqualFunc(s.grads[name], g, same) {
			t.Errorf("%s: the gradient of %s is off by %.2g of its length", what, name, distance(s.grads[name], g))
		}
	}
}

func TestOneResultForAllRanks(t *testing.T) {
	const sequences, seq = 8, 64
	cfg := with(quantizable(64, 64), func(c *Config) {
		c.MTPLayers, c.BalanceAlpha, c.QRank, c.MaxPositions, c.TopK = 1, 0.1, 32, seq, 2
	})
	b := batchOf(17, sequences, seq, cfg.Vocab)
	for _, name := range []string{"fp32", "bf16", "mxfp8", "mxfp8-experts", "bf16, grouped queries", "mxfp8, grouped queries", "bf16 by h100",
		"mxfp8 by b200"} {
		t.Run(name, func(t *testing.T) {
			precision, queries, _ := strings.Cut(name, ",")
			cfg := cfg
			if queries != "" {
				sharedKeys(&cfg)
			}
			want := trainedBy(t, cfg, precision, "onesided", b, 1, 1)
			if !(want.loss.Sum > 0 && want.loss.Ahead > 0 && want.loss.Balance > 0) {
				t.Fatalf("measured %+v", want.loss)
			}
			for _, ranks := range []int{2, 8} {
				trainedBy(t, cfg, precision, "onesided", b, ranks, 1).equals(t, fmt.Sprintf("np %d", ranks), want)
			}
			trainedBy(t, cfg, precision, "standard", b, 4, 1).equals(t, "np 4, standard exchange", want)
			trainedBy(t, cfg, precision, "onesided", b, 2, 2).equals(t, "np 2, 2 threads", want)
		})
	}
}

// With an output that is too large for one sequence's gradients, and one that takes a few
// sequences, the weight's gradient is a tree of several products.
func TestOneResultWithLargeVocabulary(t *testing.T) {
	const sequences, seq = 4, 48
	for _, vocab := range []int{60_000, 180_000} {
		cfg := with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = vocab, 1 })
		b := batchOf(18, sequences, seq, cfg.Vocab)
		want := trainedBy(t, cfg, "bf16", "onesided", b, 1, 1)
		trainedBy(t, cfg, "bf16", "onesided", b, 2, 1).equals(t, fmt.Sprintf("vocabulary of %d, np 2", vocab), want)
	}
}
