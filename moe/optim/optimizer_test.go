package optim

import (
	"errors"
	"fmt"
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
			clipped := 0
			for step := range 8 {
				lr := 0.05 / float64(step+1)
				grad := make([]float64, n)
				for i := range grad {
					g.Grad.F32()[i] = float32(rng.NormFloat64() * float64(step+1) / 4)
					grad[i] = float64(g.Grad.F32()[i])
				}
				res, err := o.Step(lr)
				if err != nil {
					t.Fatal(err)
				}
				norm := ref.step(lr, grad)
				if norm > clip {
					clipped++
				}
				if math.Abs(res.GradNorm/norm-1) > 1e-6 || res.Skipped {
					t.Errorf("step %d: %+v, want norm %g", step, res, norm)
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
			if name == "clipped sometimes" && (clipped == 0 || clipped == 8) {
				t.Errorf("%d of 8 steps were clipped", clipped)
			}
		})
	}
}

// SetSteps continues where another optimizer stopped: state and step number are all there is.
func TestResume(t *testing.T) {
	comm := collective.NewWorld(1).Comm(0)
	step := func(o *Optimizer, g *moe.Group, k int) {
		for i := range g.Params[0].Grad.F32() {
			g.Grad.F32()[i] = float32(i%7-3) * float32(k+1)
		}
		if _, err := o.Step(0.1); err != nil {
			t.Fatal(err)
		}
	}
	g := group("w", comm, tensor.FP32, 16, 40)
	whole := New(tensor.NewExec(), []*moe.Group{g}, comm, adamw())
	if err := whole.Init(1); err != nil {
		t.Fatal(err)
	}
	resumedGroup := group("w", comm, tensor.FP32, 16, 40)
	resumed := New(tensor.NewExec(), []*moe.Group{resumedGroup}, comm, adamw())
	for k := range 6 {
		if k == 3 {
			to := slices.Collect(resumed.Pieces)
			for i, p := range slices.Collect(whole.Pieces) {
				for j, v := range p.State {
					copy(to[i].State[j].Data.Bytes(), v.Data.Bytes())
				}
			}
			resumed.SetSteps(whole.Steps())
			if err := resumed.Publish(); err != nil {
				t.Fatal(err)
			}
		}
		step(whole, g, k)
		if k >= 3 {
			step(resumed, resumedGroup, k)
		}
	}
	got, want := newState(), newState()
	for s, o := range map[*wholeState]*Optimizer{got: resumed, want: whole} {
		if err := s.add(&rank{opt: o}); err != nil {
			t.Fatal(err)
		}
	}
	got.equals(t, want)
}

func TestNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	huge := float32(3e38)
	for _, c := range []struct {
		name  string
		group int // 0: replicated, 1: local
		value func(rank int) float32
	}{
		{"NaN in a replicated gradient", 0, func(r int) float32 { return pick(r == 1, nan, 1) }},
		{"Inf in a replicated gradient", 0, func(r int) float32 { return pick(r == 1, inf, 1) }},
		{"NaN in a local gradient", 1, func(r int) float32 { return pick(r == 1, nan, 1) }},
		{"Inf in a local gradient", 1, func(r int) float32 { return pick(r == 1, -inf, 1) }},
		{"a sum that overflows", 0, func(r int) float32 { return huge }},
		{"infinities that cancel", 0, func(r int) float32 { return pick(r%2 == 0, inf, -inf) }},
	} {
		for _, ranks := range []int{2, 4} {
			for _, at := range []int{0, 130} { // in the first and in a later rank's slice
				t.Run(fmt.Sprintf("%s/np%d/at%d", c.name, ranks, at), func(t *testing.T) {
					err := collective.NewWorld(ranks).Run(func(comm *collective.Comm) error {
						groups := []*moe.Group{group("all", comm, tensor.BF16, 6, 100, 150), group("own", nil, tensor.BF16, 0, 256)}
						o := New(tensor.NewExec(), groups, comm, adamw())
						if err := o.Init(1); err != nil {
							return err
						}
						setGradients(groups, 1)
						if err := stepOf(o, false); err != nil {
							return err
						}
						before := newState()
						if err := before.add(&rank{opt: o}); err != nil {
							return err
						}
						setGradients(groups, 1)
						groups[c.group].Grad.F32()[at] = c.value(comm.Rank())
						if err := stepOf(o, true); err != nil {
							return err
						}
						after := newState()
						if err := after.add(&rank{opt: o}); err != nil {
							return err
						}
						after.equals(t, before)
						if o.Steps() != 1 {
							t.Errorf("rank %d counts %d updates after a skipped one, want 1", comm.Rank(), o.Steps())
						}
						setGradients(groups, 1)
						return stepOf(o, false)
					})
					if err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

func pick(first bool, a, b float32) float32 {
	if first {
		return a
	}
	return b
}

func setGradients(groups []*moe.Group, x float32) {
	for _, g := range groups {
		for i := range g.Grad.F32() {
			g.Grad.F32()[i] = x
		}
	}
}

// stepOf makes a step and checks what it says.
func stepOf(o *Optimizer, skipped bool) error {
	steps := o.Steps()
	res, err := o.Step(0.01)
	switch {
	case err != nil:
		return err
	case res.Skipped != skipped:
		return fmt.Errorf("the step gave %+v, skipped should be %t", res, skipped)
	case !skipped && o.Steps() != steps+1:
		return fmt.Errorf("%d updates after %d", o.Steps(), steps)
	}
	return nil
}

// After an update, a skipped step and a discarded one, the next gradients are as the first ones,
// and zero behind the parameters, whatever stood there.
func TestNextGradientsReplace(t *testing.T) {
	const lr = 0 // so that the weights stay
	for name, end := range map[string]func(o *Optimizer) error{
		"Apply":   func(o *Optimizer) error { return o.Apply(lr, 1) },
		"Skip":    func(o *Optimizer) error { o.Skip(); return nil },
		"Discard": func(o *Optimizer) error { o.Discard(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			onRanks(t, 2, tensor.FP32, adamw(), func(r *rank) error {
				if err := r.opt.Init(1); err != nil {
					return err
				}
				var all [2][]float32
				for i := range all {
					tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8}
					if _, err := r.model.Train(tensor.NewExec(), moe.Batch{Inputs: tokens, Targets: tokens, Seq: 4, GlobalSequences: 4}); err != nil {
						return err
					}
					for _, g := range r.model.Groups {
						all[i] = append(all[i], g.Grad.F32()...)
					}
					if err := r.comm.Barrier(); err != nil { // gradients may be shared
						return err
					}
					for _, g := range r.model.Groups {
						if !g.Shared || r.comm.Rank() == 0 {
							setGradients([]*moe.Group{g}, 1)
						}
					}
					if err := r.comm.Barrier(); err != nil {
						return err
					}
					if err := end(r.opt); err != nil {
						return err
					}
				}
				if !slices.Equal(all[0], all[1]) {
					return errors.New("the next gradients are others")
				}
				return nil
			})
		})
	}
}
