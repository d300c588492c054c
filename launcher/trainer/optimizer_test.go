package trainer

// An optimizer that only this file knows, through all that a run does with one.

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/save"
	"spmoe/launcher/trainer/state"
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

func (t toy) Of(moe.Class) optim.Rule { return t }

func (t toy) Prepare(s optim.Step) optim.Update {
	return func(ex *tensor.Exec, r optim.Run) {
		newMaster, master := r.Master()
		newMomentum, momentum := r.Vector(0)
		tensor.Words(ex, &r.Sums.Read[0], master)
		tensor.Words(ex, &r.Sums.Read[1], momentum)
		tensor.Words(ex, &r.Sums.Grad, r.Grad)
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
		tensor.Words(ex, &r.Sums.Wrote[1], newMomentum)
		r.Round(ex)
	}
}

func useToy(c *config.Config) {
	c.Optimizer.Name, c.Optimizer.LR = "toy", 0.3
	c.Steps, c.SaveEvery, c.Keep, c.Model.Experts = 4, 2, 9, 8
}

// useMuon sets Muon, which clips some heads of a layoutRun.
func useMuon(o *config.Optimizer) { o.Name, o.QKClip, o.LR = "muon", 0.02, 0.02 }

// Each optimizer trains to weights of its own, and checkpoints hold its state and no other.
// TestOneResultForAllOptimizers compares layouts.
func TestStateOfOptimizers(t *testing.T) {
	t.Parallel()
	weights := map[string]string{} // names of optimizers, by checksums
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string // vectors of the output head, with their types
	}{
		"adamw":           {func(*config.Config) {}, "exp_avg F32, exp_avg_sq F32, "},
		"adamw bf16":      {func(c *config.Config) { c.Optimizer.Moments = "bf16" }, "exp_avg BF16, exp_avg_sq BF16, "},
		"toy":             {useToy, "momentum_buffer BF16, "},
		"muon":            {func(c *config.Config) { useMuon(&c.Optimizer) }, "exp_avg F32, exp_avg_sq F32, "},
		"muon, unclipped": {func(c *config.Config) { useMuon(&c.Optimizer); c.Optimizer.QKClip = 0 }, "exp_avg F32, exp_avg_sq F32, "},
	} {
		cfg := tiny(t, c.change)
		if got := train(t, cfg, 1, ""); !(got.steps[3].Loss < got.steps[0].Loss) {
			t.Errorf("%s: the loss went from %g to %g", name, got.steps[0].Loss, got.steps[3].Loss)
		}
		r, err := checkpoint.Open(filepath.Join(cfg.Out, "step-00000004"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		sums, err := save.ReadStateSums(r)
		if err != nil {
			t.Fatal(err)
		}
		has := ""
		for _, vector := range []string{"exp_avg", "exp_avg_sq", "momentum_buffer"} {
			if dtype := r.DType(vector + "/lm_head.weight"); dtype != "" {
				has += vector + " " + dtype + ", "
			}
		}
		same := weights[sums.Tensors["master/lm_head.weight"]]
		if weights[sums.Tensors["master/lm_head.weight"]] = name; has != c.want || same != "" {
			t.Errorf("%s holds %s want %s and has the weights of %q", name, has, c.want, same)
		}
	}
}

// A checkpoint of another optimizer, or of another state of the same, is refused before any rank
// starts.
func TestResumeWithAnotherOptimizer(t *testing.T) {
	byToy := tiny(t, useToy)
	byAdamW := tiny(t, func(c *config.Config) { useToy(c); c.Optimizer.Name = "" })
	train(t, byToy, 1, "")
	train(t, byAdamW, 1, "")
	for _, c := range []struct {
		cfg    config.Config
		change func(*config.Config)
		want   string
	}{
		{byToy, func(c *config.Config) { c.Optimizer.Name = "" }, "was trained with optimizer toy, not adamw: leave optimizer.name out"},
		{byAdamW, func(c *config.Config) { c.Optimizer.Name = "toy" }, "was trained with optimizer adamw, not toy"},
		{byToy, func(c *config.Config) { c.Optimizer.Eps = wideEps }, "is BF16, expected F32: leave the --model flags out, or resume with the program that saved it"},
		{byAdamW, func(c *config.Config) { c.Optimizer.Name = "adamw" }, ""},
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

// A run may change the type of the moments when it resumes. FP32 moments are then rounded to
// nearest even, and BF16 moments widened. All other state is the same.
func TestResumeWithOtherMoments(t *testing.T) {
	wide := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 4, 2, 9 })
	train(t, wide, 1, "")
	narrow := wide
	narrow.Optimizer.Moments, narrow.Out = "bf16", filepath.Join(t.TempDir(), "narrow")
	converted := convertState(t, wide, narrow)
	for name, before := range converted[0] {
		rounded := make([]tensor.BFloat16, len(before))
		want := slices.Clone(before)
		if strings.HasPrefix(name, "exp_avg") {
			tensor.Round(rounded, before)
			tensor.Widen(want, rounded)
		}
		if !slices.Equal(converted[1][name], want) {
			t.Errorf("FP32 to BF16: %s differs", name)
		}
	}
	train(t, narrow, 2, filepath.Join(wide.Out, "step-00000002"))
	again := wide
	again.Out = filepath.Join(t.TempDir(), "wide")
	converted = convertState(t, narrow, again)
	for name, before := range converted[0] {
		if !slices.Equal(converted[1][name], before) {
			t.Errorf("BF16 to FP32: %s differs", name)
		}
	}
}

// convertState returns the state of the last checkpoint of a run, and that state as a run of
// another configuration holds it.
func convertState(t *testing.T, from, to config.Config) (states [2]map[string][]float32) {
	t.Helper()
	_, states[0] = savedProgress(t, from, from.Steps)
	states[1] = map[string][]float32{}
	onRanks(t, to, 1, filepath.Join(from.Out, fmt.Sprintf("step-%08d", from.Steps)), func(r *rank) error {
		for _, p := range r.Pieces() {
			wide := p.Data
			if half := p.BF16; half != nil {
				wide = make([]float32, p.Len())
				for i := range wide {
					wide[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(half[2*i:])) << 16)
				}
			}
			states[1][p.Name] = append(states[1][p.Name], wide...)
		}
		return nil
	})
	return states
}

// Estimates follow the optimizer, and a vault has room for its state, however unevenly ranks share
// matrices.
func TestOptimizerMemory(t *testing.T) {
	for name, perWeight := range map[string][2]int64{"adamw": {12, 12}, "adamw bf16": {8, 8}, "toy": {6, 6}, "muon": {8, 12}, "muon bf16": {6, 8}} {
		for _, ranks := range []int{1, 2, 4, 8} {
			cfg := tiny(t, func(c *config.Config) { useToy(c); c.Optimizer.Name, c.Optimizer.Moments, _ = strings.Cut(name, " ") })
			weights := estimate.Memory(cfg, ranks).Gradients / 4
			if n := estimate.Memory(cfg, 1).Optimizer; ranks == 1 && (n < perWeight[0]*weights || n > perWeight[1]*weights) {
				t.Errorf("%s: %d bytes of state are estimated for %d weights", name, n, weights)
			}
			err := spmd.Goroutines{N: ranks}.Run(func(c *collective.Comm) error {
				model, err := moe.New(cfg.Model, moe.Unquantized(tensor.FP32), cfg.Seq, c, nil)
				if err != nil {
					return err
				}
				if has, need := estimate.Vault(cfg, ranks), state.VaultBytes(cfg.Model, optim.StateBytes(estimate.Rule(cfg), model.Groups)); has < need {
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
