package moe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/tensor"
)

func TestBalanceMovesBias(t *testing.T) {
	const speed = 0.01
	for _, c := range []struct {
		name string
		load []int64
		want []float64 // change of the bias over speed
	}{
		{"even", []int64{5, 5, 5, 5}, []float64{0, 0, 0, 0}},
		{"no tokens", []int64{0, 0, 0, 0}, []float64{0, 0, 0, 0}},
		{"two above, two below", []int64{9, 1, 6, 4}, []float64{-1, 1, -1, 1}},
		{"one takes all: steps sum to 2, mean 0.5", []int64{20, 0, 0, 0}, []float64{-1.5, 0.5, 0.5, 0.5}},
		{"one at the mean", []int64{5, 9, 3, 3}, []float64{-0.25, -1.25, 0.75, 0.75}},
		{"mean is no whole number", []int64{2, 2, 2, 1}, []float64{-0.5, -0.5, -0.5, 1.5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := with(tiny(), func(c *Config) { c.Experts, c.BiasSpeed = 4, speed })
			r := alone(t, cfg, tensor.FP32, 8).model.Routings()[0]
			before := slices.Clone(r.Bias.F32())
			copy(r.Load, []int64{7, 7, 7, 7}) // this rank's own: only the sum over ranks may matter
			r.Balance(c.load)
			for e, b := range r.Bias.F32() {
				if moved := float64(b-before[e]) / speed; math.Abs(moved-c.want[e]) > 1e-4 {
					t.Errorf("bias of expert %d moved by %.4f steps, want %g", e, moved, c.want[e])
				}
			}
			if d := sum(r.Bias.F32()) - sum(before); math.Abs(float64(d)) > 1e-6 {
				t.Errorf("the sum of the biases moved by %g", d)
			}
			if slices.Max(r.Load) != 0 {
				t.Errorf("the load is %v after balancing", r.Load)
			}
		})
	}
}

// Forced, all experts of all layers have the same load, to a token.
func TestForceBalance(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.ForceBalance = true })
	m := alone(t, cfg, tensor.FP32, 8)
	b := batchOf(3, 5, 8, cfg.Vocab)
	if _, err := m.model.Train(m.ex, b); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.model.Routings() {
		if least, most := slices.Min(r.Load), slices.Max(r.Load); most > least+1 || most*int64(cfg.Experts) < int64(len(b.Inputs)*cfg.TopK) {
			t.Errorf("layer %d: loads %v", r.Layer, r.Load)
		}
	}
}

func TestBalanceOff(t *testing.T) {
	r := alone(t, with(tiny(), func(c *Config) { c.BiasSpeed = 0 }), tensor.FP32, 8).model.Routings()[0]
	before := slices.Clone(r.Bias.F32())
	r.Load[0] = 3
	r.Balance([]int64{9, 0, 0, 0, 0, 0, 0, 0})
	if !slices.Equal(r.Bias.F32(), before) || r.Load[0] != 0 {
		t.Errorf("bias %v, was %v; load %v, want zeros", r.Bias.F32(), before, r.Load)
	}
}

// directBalanceLoss is the formula of the paper (arXiv:2412.19437, 17 to 20) in float64, for
// sequences of seq tokens; scores: [tokens][experts].
func directBalanceLoss(scores [][]float64, chosen [][]int32, seq, topK int, alpha float64) float64 {
	experts := len(scores[0])
	var all float64
	for lo := 0; lo < len(scores); lo += seq {
		f, p := make([]float64, experts), make([]float64, experts)
		for t := lo; t < lo+seq; t++ {
			for _, e := range chosen[t] {
				f[e] += float64(experts) / float64(topK*seq)
			}
			var total float64
			for _, s := range scores[t] {
				total += s
			}
			for e, s := range scores[t] {
				p[e] += s / total / float64(seq)
			}
		}
		for e := range f {
			all += alpha * f[e] * p[e]
		}
	}
	return all / float64(len(scores)/seq)
}

func TestBalanceLoss(t *testing.T) {
	const sequences, seq, alpha = 3, 5, 0.2
	cfg := with(tiny(), func(c *Config) { c.BalanceAlpha, c.TopK = alpha, 3 })
	r := newRouter(newBuilder(Unquantized(tensor.FP32), Mesh{}), cfg, "", 1)
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := sequences * seq
	s := &routerState{}
	s.scores, s.experts = tensor.New(tensor.FP32, tokens, cfg.Experts), tensor.New(tensor.INT32, tokens, cfg.TopK)
	scores, chosen := make([][]float64, tokens), make([][]int32, tokens)
	for tok := range tokens {
		row := s.scores.Index(tok).F32()
		for e := range row {
			row[e] = rng.Float32() + 0.01
			scores[tok] = append(scores[tok], float64(row[e]))
		}
		ids := s.experts.Index(tok).I32()
		for k, e := range rng.Perm(cfg.Experts)[:cfg.TopK] {
			ids[k] = int32(e)
		}
		chosen[tok] = ids
	}
	dscores := tensor.New(tensor.FP32, tokens, cfg.Experts)
	dscores.F32()[0] = 99 // must be overwritten
	got := balanceLoss(r, s, dscores, seq, sequences)
	if want := directBalanceLoss(scores, chosen, seq, cfg.TopK, alpha); math.Abs(got-want) > 1e-6*want {
		t.Errorf("the balance loss is %.9g, want %.9g", got, want)
	}

	for tok := range tokens {
		for e := range cfg.Experts {
			const h = 1e-4
			at := func(d float64) float64 {
				origin := scores[tok][e]
				defer func() { scores[tok][e] = origin }()
				scores[tok][e] += d
				return directBalanceLoss(scores, chosen, seq, cfg.TopK, alpha)
			}
			want := (at(h) - at(-h)) / (2 * h)
			if d := float64(dscores.Index(tok).F32()[e]); math.Abs(d-want) > 1e-6 {
				t.Fatalf("gradient of token %d, expert %d is %.6g, want %.6g", tok, e, d, want)
			}
		}
	}

	r.cfg.BalanceAlpha = 0
	if got := balanceLoss(r, s, dscores, seq, sequences); got != 0 || l2(dscores.F32()) != 0 {
		t.Errorf("without a weight the loss is %g, its gradient of length %g", got, l2(dscores.F32()))
	}
}

// balanceLoss returns the loss of all sequences.
func balanceLoss(r *router, s *routerState, dscores tensor.Tensor, seq, sequences int) float64 {
	losses := make([]sequenceLoss, sequences)
	r.balanceLoss(tensor.NewExec(), s, losses, dscores, seq, sequences)
	var all Loss
	all.sum(losses)
	return all.Balance
}
