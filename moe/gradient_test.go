package moe

// The gradients of Train against finite differences of the objective that Eval measures.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/tensor"
)

// variant is a combination of the model's switches.
type variant struct{ softmax, normTopK, grouped, mtp, balance, qRank, yarn bool }

// variants is the two-level fractional factorial design 2^(7-3): every combination of any three
// switches occurs (twice) in 16 models.
func variants() []variant {
	var all []variant
	for i := range 16 {
		a, b, c, d := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0
		all = append(all, variant{a, b, c, d, a != b != c, b != c != d, a != c != d})
	}
	return all
}

func (v variant) String() string {
	return fmt.Sprintf("softmax=%t,norm=%t,groups=%t,mtp=%t,balance=%t,qrank=%t,yarn=%t",
		v.softmax, v.normTopK, v.grouped, v.mtp, v.balance, v.qRank, v.yarn)
}

func (v variant) config() Config {
	c := tiny()
	c.NormTopK = v.normTopK
	if v.softmax {
		c.ScoreFunc = Softmax
	}
	if v.grouped {
		grouped(&c)
	}
	if v.mtp {
		c.MTPLayers, c.MTPWeight = 1, 0.4
	}
	if v.balance {
		c.BalanceAlpha = 0.1
	}
	if v.qRank {
		c.QRank = 10
	}
	if v.yarn {
		stretched(&c)
	}
	return c
}

func TestVariantsCoverAllTriples(t *testing.T) {
	switches := func(v variant) []bool {
		return []bool{v.softmax, v.normTopK, v.grouped, v.mtp, v.balance, v.qRank, v.yarn}
	}
	for i := range 7 {
		for j := range i {
			for k := range j {
				seen := map[[3]bool]bool{}
				for _, v := range variants() {
					s := switches(v)
					seen[[3]bool{s[i], s[j], s[k]}] = true
				}
				if len(seen) != 8 {
					t.Errorf("switches %d, %d and %d: %d of 8 combinations", i, j, k, len(seen))
				}
			}
		}
	}
}

// gradientBound is the largest accepted error of a directional derivative, as a share of the
// gradient's length: float32 reaches 6e-4 to 2e-3, by how small the steps have to be. noiseFloor
// is what float32 losses cost however small the gradient is.
const (
	gradientBound = 3e-3
	noiseFloor    = 5e-5
)

func TestGradients(t *testing.T) {
	var worst float64
	var tested, skipped, weak int
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			g := newGradientCheck(t, v.config())
			for _, p := range g.model.Params() {
				g.check(t, p)
			}
			worst = max(worst, g.worst)
			tested, skipped, weak = tested+g.tested, skipped+g.skipped, weak+g.weak
		})
	}
	t.Logf("%d parameters: worst error %.2g of the gradient; %d with gradients near the noise, %d next to another choice of experts",
		tested, worst, weak, skipped)
	if skipped*10 > tested || weak*5 > tested {
		t.Errorf("of %d parameters %d could not be tested and %d barely: the check has lost its teeth", tested+skipped, skipped, weak)
	}
}

// TestGradientsOfEdgeShapes covers what the switches do not: a single choice, groups of one
// expert, every expert chosen, no shared expert, no dense layer, sequences of one token.
func TestGradientsOfEdgeShapes(t *testing.T) {
	for name, c := range map[string]struct {
		seq  int
		edit func(c *Config)
	}{
		"top 1":           {6, func(c *Config) { c.TopK, c.NormTopK = 1, false }},
		"groups of one":   {6, func(c *Config) { c.Groups, c.TopKGroups = 8, 3 }},
		"every expert":    {6, func(c *Config) { c.TopK, c.BalanceAlpha = 8, 0.1 }},
		"in turn":         {6, func(c *Config) { c.ForceBalance = true }},
		"no shared":       {6, func(c *Config) { c.SharedExperts = 0 }},
		"two shared":      {6, func(c *Config) { c.SharedExperts = 2 }},
		"no dense layer":  {6, func(c *Config) { c.DenseLayers = 0 }},
		"no MoE layer":    {6, func(c *Config) { c.DenseLayers = 2 }},
		"one token":       {1, func(c *Config) { c.MTPLayers = 1 }},
		"two tokens, mtp": {2, func(c *Config) { c.MTPLayers, c.BalanceAlpha = 1, 0.1 }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGradientCheckOf(t, with(tiny(), c.edit), min(12/c.seq, 5), c.seq)
			for _, p := range g.model.Params() {
				g.check(t, p)
			}
			if g.skipped*3 > g.tested {
				t.Errorf("%d parameters were tested, %d could not be", g.tested, g.skipped)
			}
		})
	}
}

// TestGradientsOfPackedDocuments: documents of a sequence do not attend to each other.
func TestGradientsOfPackedDocuments(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers, c.MTPWeight, c.QRank = 1, 0.4, 10 })
	b := batchOf(6, 4, 7, cfg.Vocab)
	open := newGradientCheckWith(t, cfg, b)
	b.First = packed(4, 7)
	g := newGradientCheckWith(t, cfg, b)
	for _, p := range g.model.Params() {
		g.check(t, p)
	}
	if g.skipped*3 > g.tested {
		t.Errorf("%d parameters were tested, %d could not be", g.tested, g.skipped)
	}
	a, _ := open.eval(t)
	if b, _ := g.eval(t); a == b {
		t.Error("the loss is that of attention over all documents")
	}
}

// gradientCheck compares one model's gradients with differences of its loss.
type gradientCheck struct {
	*member
	batch   Batch
	choices []int32 // of experts, with the weights as they are
	rng     *rand.Rand

	worst                 float64 // error over the gradient's length, of gradients above the noise
	tested, skipped, weak int
}

func newGradientCheck(t *testing.T, cfg Config) *gradientCheck {
	return newGradientCheckOf(t, cfg, 4, 7)
}

func newGradientCheckOf(t *testing.T, cfg Config, sequences, seq int) *gradientCheck {
	t.Helper()
	return newGradientCheckWith(t, cfg, batchOf(6, sequences, seq, cfg.Vocab))
}

func newGradientCheckWith(t *testing.T, cfg Config, b Batch) *gradientCheck {
	t.Helper()
	g := &gradientCheck{
		member: alone(t, cfg, tensor.FP32, b.Seq),
		batch:  b,
		rng:    rand.New(rand.NewPCG(5, 5)),
	}
	loss, choices := g.eval(t)
	g.choices = choices
	trained, err := g.model.Train(g.ex, g.batch)
	if err != nil {
		t.Fatal(err)
	}
	if got := trained.objective(cfg); got != loss {
		t.Errorf("Train measured %v, Eval %v", got, loss)
	}
	return g
}

// eval returns the objective and every token's choices of experts, sorted: their order does not
// matter.
func (g *gradientCheck) eval(t *testing.T) (float64, []int32) {
	t.Helper()
	var choices []int32
	g.model.Observe(func(name string, x tensor.Tensor) {
		if x.DType() == tensor.INT32 {
			for tok := range x.Dim(0) {
				choices = append(choices, slices.Sorted(slices.Values(x.Index(tok).I32()))...)
			}
		}
	})
	defer g.model.Observe(nil)
	loss, err := g.model.Eval(g.ex, g.batch)
	if err != nil {
		t.Fatal(err)
	}
	return loss.objective(g.model.Config), choices
}

// check compares the derivative along a random direction with the gradient's part in it. Where a
// step changes a choice of experts the loss jumps: another direction is taken then, and a smaller
// step.
func (g *gradientCheck) check(t *testing.T, p *Param) {
	t.Helper()
	size := l2(p.Grad.F32())
	for step := 4e-3; step > 5e-4; step *= 0.8 {
		direction := make([]float64, p.Len())
		var want float64
		for i, d := range p.Grad.F32() {
			direction[i] = g.rng.NormFloat64()
			want += float64(d) * direction[i]
		}
		got, ok := g.derivative(t, p, direction, step)
		if !ok {
			continue
		}
		g.tested++
		if size*gradientBound < noiseFloor {
			g.weak++
		} else {
			g.worst = max(g.worst, math.Abs(got-want)/size)
		}
		if !(math.Abs(got-want) <= gradientBound*size+noiseFloor) {
			t.Errorf("%s: derivative %.6g along a direction, gradient says %.6g (of length %.3g)", p.Name, got, want, size)
		}
		return
	}
	g.skipped++
}

// derivative returns that of the objective along a direction by the five-point formula, whose
// error goes with the fourth power of the step. ok is false if a choice of experts changed.
func (g *gradientCheck) derivative(t *testing.T, p *Param, direction []float64, step float64) (d float64, ok bool) {
	t.Helper()
	weights := p.Work.F32()
	origin := slices.Clone(weights)
	defer copy(weights, origin)
	ok = true
	at := func(steps float64) float64 {
		for i := range weights {
			weights[i] = origin[i] + float32(steps*step*direction[i])
		}
		loss, choices := g.eval(t)
		ok = ok && slices.Equal(choices, g.choices)
		return loss
	}
	d = (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
	return d, ok
}
