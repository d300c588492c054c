package optim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// reference is AdamW of the paper (arXiv:1711.05101) in float64, clipped by the global norm.
type reference struct {
	cfg     AdamW
	clip    float64
	w, m, v []float64
	steps   int
}

func (r *reference) step(lr float64, grad []float64) (norm float64) {
	for _, g := range grad {
		norm += g * g
	}
	norm = math.Sqrt(norm)
	scale := 1.0
	if r.clip > 0 && norm > r.clip {
		scale = r.clip / norm
	}
	r.steps++
	for i, g := range grad {
		g *= scale
		r.m[i] = r.cfg.Beta1*r.m[i] + (1-r.cfg.Beta1)*g
		r.v[i] = r.cfg.Beta2*r.v[i] + (1-r.cfg.Beta2)*g*g
		m := r.m[i] / (1 - math.Pow(r.cfg.Beta1, float64(r.steps)))
		v := r.v[i] / (1 - math.Pow(r.cfg.Beta2, float64(r.steps)))
		r.w[i] -= lr*r.cfg.WeightDecay*r.w[i] + lr*m/(math.Sqrt(v)+r.cfg.Eps)
	}
	return norm
}

func TestStepAgainstReference(t *testing.T) {
	const n = 77 // no multiple of a vector
	for name, edit := range map[string]func(c *AdamW) (clip float64){
		"plain":             func(*AdamW) float64 { return 0 },
		"no decay":          func(c *AdamW) float64 { c.WeightDecay = 0; return 0 },
		"clipped":           func(*AdamW) float64 { return 0.5 },
		"clipped sometimes": func(*AdamW) float64 { return 8 },
		"usual constants":   func(c *AdamW) float64 { *c = AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}; return 1 },
		"no moments":        func(c *AdamW) float64 { c.Beta1, c.Beta2 = 0, 0; return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := adamw()
			clip := edit(&cfg)
			c := collective.NewWorld(1).Comm(0)
			g := group("w", c, tensor.FP32, 0, n)
			o := New(tensor.NewExec(), []*moe.Group{g}, c, cfg)
			o.ClipNorm = clip
			if err := o.Init(1); err != nil {
				t.Fatal(err)
			}
			ref := &reference{cfg: cfg, clip: clip, w: make([]float64, n), m: make([]float64, n), v: make([]float64, n)}
			for i, w := range g.Work.F32() {
				ref.w[i] = float64(w)
			}
			rng := rand.New(rand.NewPCG(2, 2))
			for step := range 8 {
				lr := 0.05 / float64(step+1)
				grad := make([]float64, n)
				for i := range grad {
					g.Grad.F32()[i] = float32(rng.NormFloat64() * float64(step+1) / 4)
					grad[i] = float64(g.Grad.F32()[i])
				}
				got, norm := o.step(t, lr), ref.step(lr, grad)
				if math.Abs(got/norm-1) > 1e-6 {
					t.Errorf("step %d: norm %g, want %g", step, got, norm)
				}
				for i, w := range g.Work.F32() {
					if math.Abs(float64(w)-ref.w[i]) > 2e-6*(1+math.Abs(ref.w[i])) {
						t.Fatalf("step %d: weight %d is %.9g, want %.9g", step, i, w, ref.w[i])
					}
				}
			}
			if o.Steps() != 8 {
				t.Errorf("%d steps were counted, want 8", o.Steps())
			}
		})
	}
}

func setGradients(groups []*moe.Group, x float32) {
	for _, g := range groups {
		for i := range g.Grad.F32() {
			g.Grad.F32()[i] = x
		}
	}
}

// A gradient that is not finite, on any rank, skips the step on all: it changes nothing, and the
// next gradients count as the first ones.
func TestNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		group  int // 0: replicated, 1: local
		values [2]float32
	}{
		"NaN in a replicated gradient": {0, [2]float32{1, nan}},
		"Inf in a local gradient":      {1, [2]float32{1, -inf}},
		"a sum that overflows":         {0, [2]float32{3e38, 3e38}},
		"infinities that cancel":       {0, [2]float32{inf, -inf}},
	} {
		for _, at := range []int{0, 130} { // in the first and in the other rank's slice
			err := collective.NewWorld(2).Run(func(comm *collective.Comm) error {
				groups := []*moe.Group{group("all", comm, tensor.BF16, 6, 100, 150), group("own", nil, tensor.BF16, 0, 256)}
				o := New(tensor.NewExec(), groups, comm, adamw())
				if err := o.Init(1); err != nil {
					return err
				}
				setGradients(groups, 1)
				first := o.step(t, 0.01)
				before, after := newState(), newState()
				err := before.add(&rank{opt: o})
				setGradients(groups, 1)
				groups[c.group].Grad.F32()[at] = c.values[comm.Rank()]
				o.step(t, 0.01)
				if err = errors.Join(err, after.add(&rank{opt: o})); err != nil {
					return err
				}
				after.equals(t, before)
				setGradients(groups, 1)
				if again := o.step(t, 0.01); o.Steps() != 2 || again != first {
					t.Errorf("%s: %d updates, norm %g after %g", name, o.Steps(), again, first)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// After an update, a skipped step and a discarded one, the next gradients replace the old ones.
func TestNextGradientsReplace(t *testing.T) {
	for name, end := range map[string]func(o *Optimizer) error{
		"Apply":   func(o *Optimizer) error { return o.Apply(0, 1) }, // the weights stay
		"Skip":    func(o *Optimizer) error { o.Skip(); return nil },
		"Discard": func(o *Optimizer) error { o.Discard(); return nil },
	} {
		onRanks(t, 1, tensor.FP32, adamw(), func(r *rank) error {
			if err := r.opt.Init(1); err != nil {
				return err
			}
			var all [2][]float32
			for i := range all {
				tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8}
				if _, err := r.model.Train(tensor.NewExec(), moe.Batch{Inputs: tokens, Targets: tokens, Seq: 4, GlobalSequences: 2}); err != nil {
					return err
				}
				for _, g := range r.model.Groups {
					all[i] = append(all[i], g.Grad.F32()...)
				}
				setGradients(r.model.Groups, 1)
				if err := end(r.opt); err != nil {
					return err
				}
			}
			if !slices.Equal(all[0], all[1]) {
				t.Errorf("%s: the next gradients are others", name)
			}
			return nil
		})
	}
}
