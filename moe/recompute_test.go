package moe

// What a block makes anew in the backward pass has the bits of what it would have kept, takes less
// memory, and is counted once.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// recomputed is what two steps, of two passes each, leave behind with one way to recompute, of each
// rank.
type recomputed struct {
	losses []Loss
	grads  []map[string][]float32
	loads  [][][]int64
	peaks  []int
}

// recipe is how a model of TestRecompute computes.
type recipe struct {
	precision, exchange string
	options             ep.Options
}

// trainRecomputed trains ranks·4 sequences, of which a pass takes two of each rank; observe may be
// nil.
func trainRecomputed(t *testing.T, cfg Config, how recipe, ranks int, mode Recompute, observe func(Quantized)) recomputed {
	t.Helper()
	const seq = 32
	precision, err := PrecisionByName(how.precision)
	if err != nil {
		t.Fatal(err)
	}
	b := batchOf(21, 4*ranks, seq, cfg.Vocab)
	b.First = packed(4*ranks, seq)
	out := recomputed{make([]Loss, ranks), make([]map[string][]float32, ranks), make([][][]int64, ranks), make([]int, ranks)}
	err = collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		exchange, err := ep.New(how.exchange, c, cfg.Experts, how.options)
		if err != nil {
			return err
		}
		model, err := New(cfg, precision, seq, c, exchange)
		if err != nil {
			return err
		}
		spread(model)
		model.Recompute = mode
		m, r := &member{c, tensor.NewExec(), model}, c.Rank()
		model.ObserveQuantized(observe)
		for _, g := range model.Groups {
			g.Refresh(m.ex)
		}
		for pass := range 4 {
			first := 4*r + 2*(pass%2)
			loss, err := model.Train(m.ex, b.part(first, first+2))
			if err != nil {
				return err
			}
			if pass%2 == 0 { // an evaluation between passes changes nothing
				if _, err := model.Eval(m.ex, b.part(first, first+1)); err != nil {
					return err
				}
			}
			l := &out.losses[r]
			l.Sum, l.Ahead, l.Balance, l.Dropped, l.Tokens = l.Sum+loss.Sum, l.Ahead+loss.Ahead, l.Balance+loss.Balance, l.Dropped+loss.Dropped, l.Tokens+loss.Tokens
		}
		for _, route := range model.Routings() {
			out.loads[r] = append(out.loads[r], slices.Clone(route.Load))
		}
		out.grads[r], out.peaks[r] = m.gradients(), model.ActivationPeak(m.ex)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// equals checks that another way to recompute gave the same bits, and counted the same.
func (got recomputed) equals(t *testing.T, want recomputed) {
	t.Helper()
	for r := range want.losses {
		if got.losses[r] != want.losses[r] {
			t.Errorf("rank %d: losses %+v, want %+v", r, got.losses[r], want.losses[r])
		}
		if !slices.EqualFunc(got.loads[r], want.loads[r], slices.Equal) {
			t.Errorf("rank %d: loads %v, want %v", r, got.loads[r], want.loads[r])
		}
		for name, g := range want.grads[r] {
			if !slices.Equal(got.grads[r][name], g) {
				t.Errorf("rank %d: the gradient of %s has other bits", r, name)
			}
		}
	}
}

func TestRecompute(t *testing.T) {
	whole := with(quantizable(64, 64), func(c *Config) {
		grouped(c)
		c.TopK, c.BalanceAlpha, c.QRank = 2, 0.1, 32
	})
	wire := ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8}
	for name, c := range map[string]struct {
		cfg Config
		how recipe
	}{
		"fp32":             {spreadModel(), recipe{"fp32", "onesided", ep.Options{}}},
		"bf16":             {spreadModel(), recipe{"bf16", "onesided", ep.Options{}}},
		"bf16, standard":   {spreadModel(), recipe{"bf16", "standard", ep.Options{}}},
		"mxfp8":            {whole, recipe{"mxfp8", "onesided", ep.Options{}}},
		"mxfp8, odd sizes": {with(quantizable(72, 40), func(c *Config) { c.TopK = 3 }), recipe{"mxfp8", "onesided", ep.Options{}}},
		"mxfp8, wire":      {whole, recipe{"mxfp8", "onesided", wire}},
		"mxfp8-wgrad-bf16": {whole, recipe{"mxfp8-wgrad-bf16", "onesided", wire}},
		"mxfp8-experts":    {whole, recipe{"mxfp8-experts", "standard", ep.Options{}}},
		"nvfp4":            {with(whole, func(c *Config) { c.Layers, c.MTPLayers = 3, 0 }), recipe{"nvfp4", "onesided", ep.Options{}}},
		"capacity":         {whole, recipe{"bf16", "onesided", ep.Options{Capacity: 0.75}}},
		"force_balance":    {with(whole, func(c *Config) { c.ForceBalance = true }), recipe{"mxfp8", "onesided", ep.Options{}}},
		"no shared expert": {with(whole, func(c *Config) { c.SharedExperts, c.QRank, c.ScoreFunc = 0, 0, Softmax }), recipe{"bf16", "onesided", ep.Options{}}},
		"dense":            {with(whole, func(c *Config) { c.DenseLayers, c.MTPLayers = 2, 0 }), recipe{"mxfp8", "onesided", ep.Options{}}},
		"grouped queries":  {with(quantizable(64, 64), sharedKeys), recipe{"mxfp8", "onesided", ep.Options{}}},
		"no norms":         {with(spreadModel(), sharingKeys["no norms"]), recipe{"bf16", "onesided", ep.Options{}}},
	} {
		for _, ranks := range []int{1, 4} {
			if ranks == 1 && name != "bf16" && name != "mxfp8" {
				continue
			}
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				want := trainRecomputed(t, c.cfg, c.how, ranks, RecomputeNone, nil)
				dropped := 0
				for _, l := range want.losses {
					dropped += l.Dropped
				}
				if (dropped > 0) != (c.how.options.Capacity > 0) {
					t.Errorf("%d choices are dropped", dropped)
				}
				for _, mode := range []Recompute{RecomputeSelective, RecomputeFull} {
					t.Run(mode.String(), func(t *testing.T) {
						trainRecomputed(t, c.cfg, c.how, ranks, mode, nil).equals(t, want)
					})
				}
			})
		}
	}
}

// Every way needs less memory than the one before.
func TestRecomputeMemory(t *testing.T) {
	cfg := with(quantizable(128, 128), func(c *Config) { c.Layers, c.TopK = 8, 2 })
	for _, precision := range []string{"bf16", "mxfp8"} {
		none := trainRecomputed(t, cfg, recipe{precision, "onesided", ep.Options{}}, 1, RecomputeNone, nil).peaks[0]
		selective := trainRecomputed(t, cfg, recipe{precision, "onesided", ep.Options{}}, 1, RecomputeSelective, nil).peaks[0]
		full := trainRecomputed(t, cfg, recipe{precision, "onesided", ep.Options{}}, 1, RecomputeFull, nil).peaks[0]
		if 10*selective > 8*none || 10*full > 4*none || full >= selective {
			t.Errorf("%s: %d bytes without, %d selective, %d full", precision, none, selective, full)
		}
	}
}

// onlyOnce is an exchange whose second Dispatch fails.
type onlyOnce struct {
	ep.Exchange
	calls *int
}

func (o onlyOnce) StartDispatch(ex *tensor.Exec, h *ep.Handle, x, topk tensor.Tensor) (ep.Arrival, error) {
	if *o.calls++; *o.calls == 2 {
		return ep.Arrival{}, errLost
	}
	return o.Exchange.StartDispatch(ex, h, x, topk)
}

// A repeated exchange that fails ends the pass with an error that says where, and nothing stays in
// the arena.
func TestRecomputeFails(t *testing.T) {
	cfg, comm := tiny(), collective.NewWorld(1).Comm(0)
	exchange, err := ep.NewStandard(comm, cfg.Experts)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, Unquantized(tensor.FP32), 8, comm, onlyOnce{exchange, new(int)})
	if err != nil {
		t.Fatal(err)
	}
	m.Recompute = RecomputeFull
	ex := tensor.NewExec()
	mark := ex.Mark()
	if _, err = m.Train(ex, batchOf(1, 2, 8, cfg.Vocab)); !errors.Is(err, errLost) {
		t.Errorf("Train returned %v", err)
	}
	contains(t, err, "layer 1, forward again")
	if ex.Mark() != mark {
		t.Error("Train left its activations in the arena")
	}
}

// An observer is shown every operand as often as without, but for those that are recomputed, which
// say so; what it changes there is what is multiplied then.
func TestRecomputeShowsOperands(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.QRank, c.TopK = 32, 2 })
	how := recipe{"mxfp8", "onesided", ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8}}
	shown := func(mode Recompute) (shown map[string]int, again int, out recomputed) {
		shown = map[string]int{}
		var mu sync.Mutex
		out = trainRecomputed(t, cfg, how, 2, mode, func(q Quantized) {
			for _, form := range []mx.Tensor{q.Rows, q.Cols} {
				if form.Codes.Valid() && !q.Sent && q.Operand == Input && form.Codes.Len() > 0 {
					form.Scales.U8()[0]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if q.Again {
				again++
			} else {
				shown[fmt.Sprintf("%d %s %v sent %t received %t", q.Layer, q.Linear, q.Operand, q.Sent, q.Received)]++
			}
			if !q.Again && !q.Rows.Codes.Valid() || !q.Rows.Codes.Valid() && !q.Cols.Codes.Valid() {
				t.Errorf("%+v is shown without its codes", q)
			}
		})
		return shown, again, out
	}
	counts, again, want := shown(RecomputeNone)
	if again > 0 {
		t.Errorf("%d operands are recomputed", again)
	}
	if undisturbed := trainRecomputed(t, cfg, how, 2, RecomputeNone, nil); undisturbed.losses[0] == want.losses[0] {
		t.Error("the observer changed nothing")
	}
	for _, mode := range []Recompute{RecomputeSelective, RecomputeFull} {
		got, again, out := shown(mode)
		if !maps.Equal(got, counts) || again == 0 {
			t.Errorf("%v: shown are %v and %d recomputed, want %v", mode, got, again, counts)
		}
		out.equals(t, want)
	}
}

// Tokens stay with the experts that they chose in the forward pass, even where they would choose
// others by now, and activations are observed once.
func TestRecomputeDoesNotChooseAnew(t *testing.T) {
	cfg := spreadModel()
	run := func(mode Recompute) (loads []int64, grads map[string][]float32, names []string) {
		m := alone(t, cfg, tensor.BF16, 8)
		m.model.Recompute = mode
		route := m.model.Routings()[0]
		m.model.Observe(func(name string, _ tensor.Tensor) {
			names = append(names, name)
			if name == fmt.Sprintf("layer%d_mlp", route.Layer) {
				route.Bias.F32()[0] += 10
			}
		})
		if _, err := m.model.Train(m.ex, batchOf(22, 4, 8, cfg.Vocab)); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(route.Load), m.gradients(), names
	}
	loads, want, observed := run(RecomputeNone)
	if loads[0] == 4*8 {
		t.Error("all tokens had chosen expert 0 in the first place")
	}
	for _, mode := range []Recompute{RecomputeSelective, RecomputeFull} {
		got, grads, names := run(mode)
		if !slices.Equal(names, observed) {
			t.Errorf("%v: observed are %v, want %v", mode, names, observed)
		}
		if !slices.Equal(got, loads) || !maps.EqualFunc(grads, want, slices.Equal) {
			t.Errorf("%v: loads are %v, want %v; gradients differ: %v", mode, got, loads, !maps.EqualFunc(grads, want, slices.Equal))
		}
	}
}

func TestParseRecompute(t *testing.T) {
	for _, want := range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
		if got, err := ParseRecompute(want.String()); err != nil || got != want {
			t.Errorf("%v is parsed as %v, error %v", want, got, err)
		}
	}
	_, err := ParseRecompute("all")
	contains(t, err, `recompute is "all": use one of none, selective, full`)
}
