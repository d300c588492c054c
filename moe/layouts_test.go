package moe

// A training step gives one result for any number of ranks, groups of ranks that hold all experts,
// hosts, shares of a sequence, passes and threads, bit for bit: losses, and gradients when the
// ranks' are added up.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
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

// way is a way to make a step. The zero way is one pass of one rank.
type way struct {
	ranks, ep, cp, tp      int // 0: 1, and for ep all ranks
	hosts, passes, threads int // 0: 1
	exchange               string
	wire                   ep.Options
}

func (w way) layout() mesh.Layout {
	ranks, shared := max(w.ranks, 1), max(w.cp, 1)*max(w.tp, 1)
	return mesh.Layout{World: ranks, PP: 1, DPReplicate: 1, DPShard: ranks / shared, CP: w.cp, TP: w.tp, EP: cmp.Or(w.ep, ranks)}
}

// train makes a step with b. sizes are those of the output's blocks. A precision may name a sum:
// "bf16 by h100". Experts have no replicas on other hosts.
func (w way) train(t *testing.T, cfg Config, sizes outputSizes, precision string, b Batch) summed {
	t.Helper()
	l, passes, hosts := w.layout(), max(w.passes, 1), max(w.hosts, 1)
	precision, sum, _ := strings.Cut(precision, " by ")
	options := DefaultOptions()
	options.Sum = cmp.Or(sum, options.Sum)
	p, err := options.Precision(precision)
	if err != nil {
		t.Fatal(err)
	}
	out := summed{grads: map[string][]float32{}}
	var mu sync.Mutex
	err = errors.Join(collective.NewHosts(slices.Repeat([]int{l.World / hosts}, hosts)...).Run(func(c *collective.Comm) error {
		on, err := NewMesh(c, l)
		if err != nil {
			return err
		}
		x, err := on.NewExchange(cmp.Or(w.exchange, "onesided"), cfg.Experts, w.wire)
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
			head.rows = m.host.assign(divideRows(cfg.Vocab, m.host.comm.Size(), head.unit))[m.host.comm.Rank()]
		}
		head.passes = newSumTree(head.own())
		ex := tensor.NewParallelExec(max(w.threads, 1))
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
		sums := []float64{loss.Sum, loss.Ahead, loss.Balance, float64(loss.Dropped), loss.Index}
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
		out.loss = Loss{Sum: sums[0], Ahead: sums[1], Balance: sums[2], Dropped: int(sums[3]), Index: sums[4]}
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

// TestOneResult compares ways with one pass of one rank: all of them in the first precision, and
// one to three in each other one; with SPMOE_LAYOUTS=all all in all.
func TestOneResult(t *testing.T) {
	trees := with(quantizable(64, 64), func(c *Config) {
		c.MTPLayers, c.BalanceAlpha, c.QRank, c.MaxPositions, c.TopK = 1, 0.1, 32, 128, 2
	})
	// Each expert has 32 rows of every sequence, enough for the kernels of many rows.
	many := with(trees, func(c *Config) { c.TopK, c.ForceBalance = 4, true })
	v4 := with(trees, func(c *Config) { c.MTPLayers = 0; likeV4(c) })
	head := func(mtp int) Config {
		return with(headModel(mtp), func(c *Config) { c.Heads, c.MaxPositions, c.BalanceAlpha = 4, 128, 0.1 })
	}
	large := func(vocab int) Config { return with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = vocab, 1 }) }
	wide := with(trees, func(c *Config) { c.Experts, c.ExpertInter, c.TopK = 2, 192, 1 })
	whole := defaultOutputSizes()
	eighths := whole // of the columns, as if a vocabulary were eight times as large
	for _, size := range []*int{&eighths.block, &eighths.wholeVocab, &eighths.tile, &eighths.logits, &eighths.gradients, &eighths.most, &eighths.shared} {
		*size /= 8
	}
	ranks := []way{{ranks: 2}, {ranks: 8}, {ranks: 4, exchange: "standard"}, {ranks: 2, threads: 2}, {ranks: 4, ep: 1}, {ranks: 8, ep: 2}}
	passes := []way{{passes: 8}, {passes: 2}, {ranks: 2, ep: 1, passes: 4}, {ranks: 2, passes: 4, threads: 2}, {ranks: 4, ep: 2, passes: 2}}
	blocks := []way{{ranks: 2}, {ranks: 8}, {ranks: 2, threads: 2}, {passes: 4}, {ranks: 2, passes: 2}}
	shared := []way{
		{ranks: 2, cp: 2, passes: 4}, {ranks: 4, cp: 2, ep: 2, passes: 2}, {ranks: 4, cp: 4, ep: 1, passes: 4}, {ranks: 8, cp: 2, tp: 2, ep: 4, passes: 2},
		{ranks: 2, hosts: 2, cp: 2, passes: 4}, {ranks: 4, hosts: 2, cp: 4, passes: 4}, {ranks: 4, hosts: 4, cp: 2, passes: 2}, {ranks: 4, hosts: 2, cp: 2, tp: 2, passes: 4},
	}
	for _, c := range []struct {
		name           string
		cfg            Config
		sizes          outputSizes
		sequences, seq int
		precisions     string
		ways           []way
	}{
		{"ranks", trees, whole, 8, 64, "fp32, bf16, mxfp8, mxfp8-experts, mxfp8-wgrad-bf16, bf16 by h100, mxfp8 by b200", ranks},
		{"grouped queries", with(trees, sharedKeys), whole, 8, 64, "bf16, mxfp8", ranks},
		{"chosen keys", with(trees, choosing), whole, 8, 64, "fp32, bf16, mxfp8", append(passes[2:3:3], ranks[1:5]...)},
		// of an expert's gradients, 4 replicas have 96 rows each, or 2 of them 32
		{"more replicas than experts", wide, whole, 8, 64, "bf16, mxfp8, bf16 by h100, nvfp4", []way{{ranks: 8, ep: 2}, {ranks: 8, ep: 1, passes: 1}}},
		{"more replicas than experts, passes", wide, whole, 8, 64, "bf16, mxfp8", []way{{ranks: 4, ep: 2, passes: 2}}},
		{"DeepSeek-V4", v4, whole, 8, 64, "fp32, bf16, mxfp8", slices.Concat(ranks[1:], passes[2:3])},
		{"passes", many, whole, 8, 64, "fp32, bf16, mxfp8, mxfp8-wgrad-bf16", passes},
		{"passes, other formats", many, whole, 4, 64, "mxint8, mxfp6-e2m3, mxfp4, bf16 by h100, mxfp4-e2m1", []way{{ranks: 2, ep: 1, passes: 2}, {ranks: 2, passes: 2}}},
		{"scales of tensors", with(trees, func(c *Config) { c.Layers = 3 }), whole, 4, 128, "nvfp4, fp8-block, fp8-tensor", []way{{ranks: 4, ep: 2}, {ranks: 4, exchange: "standard"}, {ranks: 2, threads: 2}}},
		{"scales of tensors, grouped queries", with(trees, func(c *Config) { c.Layers = 3; sharedKeys(c) }), whole, 4, 128, "nvfp4", []way{{ranks: 4, ep: 2}}},
		{"blocks of whole sequences", headModel(1), smallSizes(4 * 41), 8, 41, "bf16, fp32", blocks},
		{"blocks of two sequences", headModel(0), smallSizes(2 * 41), 8, 41, "fp32", blocks},
		{"blocks of parts", headModel(1), smallSizes(16), 8, 41, "bf16, fp32", blocks},
		{"large vocabulary", large(7_500), eighths, 4, 48, "bf16", []way{{ranks: 2}}},
		{"larger vocabulary", large(22_500), eighths, 4, 48, "bf16", []way{{ranks: 2}}},
		{"shared sequences", head(1), smallSizes(2 * 128), 4, 128, "bf16, fp32", shared},
		{"shared sequences in parts", head(0), smallSizes(96), 4, 128, "bf16", shared},
		{"shared sequences in small parts", head(1), smallSizes(48), 4, 128, "fp32", shared},
		{"many rows", with(head(1), func(c *Config) { c.MaxPositions = 4096 }), whole, 1, 4 * (gatheredRows/2 + 32), "bf16, mxfp8, fp8-tensor",
			[]way{{ranks: 2, tp: 2}, {ranks: 4, tp: 4, ep: 1}, {ranks: 4, cp: 2, tp: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := batchOf(17, c.sequences, c.seq, c.cfg.Vocab)
			for n, precision := range strings.Split(c.precisions, ", ") {
				want, all := way{}.train(t, c.cfg, c.sizes, precision, b), n == 0 || os.Getenv("SPMOE_LAYOUTS") == "all"
				for i, w := range c.ways {
					if apart := max(len(c.ways)/2, 2); !all && i%apart != n%apart {
						continue
					}
					w.train(t, c.cfg, c.sizes, precision, b).equals(t, fmt.Sprintf("%s, %+v", precision, w), want)
				}
			}
		})
	}
}

// Attention stays within documents, which begin anywhere, for ranks that share sequences too.
func TestOneResultWithDocuments(t *testing.T) {
	const sequences, seq = 2, 128
	cfg := with(headModel(0), func(c *Config) { c.Heads, c.MaxPositions = 4, seq })
	b := batchOf(29, sequences, seq, cfg.Vocab)
	plain := way{}.train(t, cfg, defaultOutputSizes(), "bf16", b)
	for i := range sequences * seq {
		first := 0
		for _, begin := range []int{23, 64, 101} {
			if i%seq >= begin {
				first = begin
			}
		}
		b.First = append(b.First, int32(first))
	}
	want := way{}.train(t, cfg, defaultOutputSizes(), "bf16", b)
	if want.loss == plain.loss {
		t.Fatal("documents change nothing")
	}
	for _, w := range []way{{ranks: 2, cp: 2, passes: 2}, {ranks: 4, cp: 4, passes: 2}, {ranks: 4, tp: 4, ep: 2, passes: 2}} {
		w.train(t, cfg, defaultOutputSizes(), "bf16", b).equals(t, fmt.Sprintf("%+v", w), want)
	}
}
