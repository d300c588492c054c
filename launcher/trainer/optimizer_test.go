package trainer

// An optimizer that only this file knows, through all that a run does with one.

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

func init() {
	optim.Register("toy", func(c optim.Config) optim.Rule { return toy{c.Beta1, c.Eps == wideEps} })
}

// wideEps is an Eps that makes the state of toy FP32: a program that has changed.
const wideEps = 0.125

// toy is SGD with momentum in BF16, whose steps have one length for each parameter, so that it
// needs whole matrices:
//
//	momentum = beta·momentum + grad·gradScale
//	master   = master - lr·momentum / |momentum|
type toy struct {
	beta float64
	wide bool
}

func (t toy) Validate() error {
	if !(t.beta >= 0 && t.beta < 1) {
		return fmt.Errorf("optimizer.beta1 is %g: give 0 or more, below 1", t.beta)
	}
	return nil
}

func (t toy) Vectors() []optim.Vector {
	if t.wide {
		return []optim.Vector{{Name: "momentum_buffer", DType: tensor.FP32}}
	}
	return []optim.Vector{{Name: "momentum_buffer", DType: tensor.BF16}}
}

func (toy) WholeMatrices() bool { return true }

func (t toy) Prepare(s optim.Step) optim.Update {
	return func(ex *tensor.Exec, r optim.Run) {
		newMaster, master := r.Master()
		newMomentum, momentum := r.Vector(0)
		var squares float64
		for i, g := range r.Grad.F32() {
			m := tensor.ToBFloat16(float32(t.beta)*momentum.BF16()[i].Float32() + g*float32(s.GradScale))
			newMomentum.BF16()[i] = m
			squares += float64(m.Float32()) * float64(m.Float32())
		}
		step := float32(s.LR / (math.Sqrt(squares) + 1e-12))
		for i, m := range newMomentum.BF16() {
			newMaster.F32()[i] = master.F32()[i] - step*m.Float32()
		}
		r.Round(ex)
	}
}

func useToy(c *Config) {
	c.Optimizer.Name, c.Optimizer.LR = "toy", 0.3
	c.Steps, c.SaveEvery, c.Keep, c.Model.Experts = 4, 2, 9, 8
}

// The toy trains to the same bits on 1, 2 and 4 ranks, and goes on from a checkpoint, which was
// written from a copy of its state, on another number of ranks as if it had not stopped.
func TestToyOptimizer(t *testing.T) {
	cfg := tiny(t, useToy)
	straight := train(t, cfg, 1, "")
	want := outcomeFrom(t, cfg, straight)
	if first, last := straight.steps[0].Loss, straight.steps[3].Loss; !(last < first-0.1) {
		t.Errorf("the loss went from %g to %g", first, last)
	}
	for _, ranks := range []int{2, 4} {
		outcomeOf(t, cfg, ranks).equals(t, fmt.Sprintf("np %d", ranks), want)
		again := cfg
		again.Out = filepath.Join(t.TempDir(), "run")
		got := train(t, again, ranks, filepath.Join(cfg.Out, "step-00000002"))
		if len(got.steps) != 2 || got.steps[1].Loss != straight.steps[3].Loss {
			t.Errorf("resumed on %d ranks: steps %+v, want the last of %+v", ranks, got.steps, straight.steps)
		}
		sameState(t, fmt.Sprintf("resumed on %d ranks", ranks), again, cfg, cfg.Steps)
	}
	if _, tensors := state(t, cfg, cfg.Steps); tensors["momentum_buffer/lm_head.weight"] == nil || tensors["exp_avg/lm_head.weight"] != nil {
		t.Error("the checkpoint does not hold the state of the toy")
	}
}

// A checkpoint of another optimizer, or of another state of the same, is refused before any rank
// starts.
func TestResumeWithAnotherOptimizer(t *testing.T) {
	byToy := tiny(t, useToy)
	byAdamW := tiny(t, func(c *Config) { useToy(c); c.Optimizer.Name = "" })
	train(t, byToy, 1, "")
	train(t, byAdamW, 1, "")
	for _, c := range []struct {
		cfg    Config
		change func(*Config)
		want   string
	}{
		{byToy, func(c *Config) { c.Optimizer.Name = "" }, "was trained with optimizer toy, not adamw: leave --optimizer.name out"},
		{byAdamW, func(c *Config) { c.Optimizer.Name = "toy" }, "was trained with optimizer adamw, not toy"},
		{byToy, func(c *Config) { c.Optimizer.Eps = wideEps }, "holds momentum_buffer (BF16) as the state of optimizer toy, which has momentum_buffer (F32) here"},
		{byAdamW, func(c *Config) { c.Optimizer.Name = "adamw" }, ""},
	} {
		cfg := c.cfg
		c.change(&cfg)
		job, err := Prepare(cfg, 2, c.cfg.Out, &reports{})
		if err == nil {
			job.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Estimates follow the optimizer, and a vault has room for its state, however unevenly ranks share
// matrices.
func TestOptimizerMemory(t *testing.T) {
	for name, perWeight := range map[string]int64{"adamw": 12, "toy": 6} {
		for _, ranks := range []int{1, 2, 4, 8} {
			cfg := tiny(t, func(c *Config) { useToy(c); c.Optimizer.Name = name })
			weights := cfg.EstimateMemory(ranks).Gradients / 4
			if ranks == 1 && cfg.EstimateMemory(1).Optimizer != perWeight*weights {
				t.Errorf("%s: %d bytes of state are estimated for %d weights", name, cfg.EstimateMemory(1).Optimizer, weights)
			}
			err := spmd.Goroutines{N: ranks}.Run(func(c *collective.Comm) error {
				model, err := moe.New(cfg.Model, moe.Unquantized(tensor.FP32), cfg.Seq, c, nil)
				if err != nil {
					return err
				}
				if has, need := cfg.Vault(ranks), vaultBytes(cfg.Model, optim.StateBytes(cfg.rule(), model.Groups, c)); has < need {
					t.Errorf("%s, np %d: the vault of rank %d has %d bytes, its state takes %d", name, ranks, c.Rank(), has, need)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
