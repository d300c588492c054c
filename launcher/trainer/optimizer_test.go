package trainer

// An optimizer that only this file knows, through all that a run does with one.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
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
	if _, tensors := savedProgress(t, cfg, cfg.Steps); tensors["momentum_buffer/lm_head.weight"] == nil ||
		tensors["exp_avg/lm_head.weight"] != nil {
		t.Error("the checkpoint does not hold the state of the toy")
	}
}

// muonRun is a run with Muon that clips some heads.
func muonRun(t *testing.T) config.Config {
	cfg := layoutRun(t, "bf16")
	cfg.Optimizer.Name, cfg.Optimizer.QKClip, cfg.Optimizer.LR = "muon", 0.02, 0.02
	cfg.SaveEvery, cfg.Keep = 1, 9
	return cfg
}

// Muon has one result in layouts with and without replicas of experts, and in stages of a pipeline.
// A checkpoint of each resumes in each.
func TestMuon(t *testing.T) {
	whole := muonRun(t)
	want := outcomeFrom(t, whole, train(t, whole, 1, ""))
	sum := sumOf(t, whole)
	unclipped := muonRun(t)
	unclipped.Optimizer.QKClip = 0
	train(t, unclipped, 1, "")
	if sumOf(t, unclipped) == sum {
		t.Error("no head was clipped")
	}
	saved := whole
	for _, l := range []mesh.Layout{
		{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 4}, {World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 1}, {World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2},
	} {
		cfg := muonRun(t)
		cfg.SetLayout(l)
		if l.PP > 1 {
			cfg.SampleTokens = 0
		}
		outcomeFrom(t, cfg, train(t, cfg, l.World, "")).equals(t, l.Name(), want)
		if got := sumOf(t, cfg); got != sum {
			t.Errorf("%s: checksum %s, want %s", l.Name(), got, sum)
		}
		again := cfg
		again.Out = filepath.Join(t.TempDir(), "run")
		train(t, again, l.World, filepath.Join(saved.Out, "step-00000001"))
		if got := sumOf(t, again); got != sum {
			t.Errorf("%s, resumed: checksum %s, want %s", l.Name(), got, sum)
		}
		saved = cfg
	}
}

// Hosts that hold the dense weights, or a part of them each, train with Muon to the bits of one
// rank.
func TestMuonOnHosts(t *testing.T) {
	t.Parallel()
	whole := muonRun(t)
	train(t, whole, 1, "")
	for _, fsdp := range []bool{false, true} {
		cfg := muonRun(t)
		cfg.FSDP = fsdp
		if _, errs := trainOnHosts(t, 2, []config.Config{cfg, cfg}, ""); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		if got, want := sumOf(t, cfg), sumOf(t, whole); got != want {
			t.Errorf("fsdp %v: checksum %s, want %s", fsdp, got, want)
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

// A run with BF16 moments ends with the same bits on 1, 2 and 4 ranks, in place and with a second
// state. It resumes as if it had not stopped, and its checkpoints hold BF16.
func TestBF16Moments(t *testing.T) {
	short := func(c *config.Config) {
		c.Optimizer.Moments, c.Steps, c.SaveEvery, c.Keep = "bf16", 4, 2, 9
	}
	cfg := tiny(t, short)
	want := outcomeFrom(t, cfg, train(t, cfg, 1, ""))
	for _, ranks := range []int{2, 4} {
		outcomeOf(t, cfg, ranks).equals(t, fmt.Sprintf("np %d", ranks), want)
		again := cfg
		again.Out = filepath.Join(t.TempDir(), "run")
		train(t, again, ranks, filepath.Join(cfg.Out, "step-00000002"))
		sameState(t, fmt.Sprintf("resumed on %d ranks", ranks), again, cfg, cfg.Steps)
	}
	r, err := checkpoint.Open(filepath.Join(cfg.Out, "step-00000004"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, vector := range []string{"exp_avg/", "exp_avg_sq/"} {
		if has := r.DType(vector + "lm_head.weight"); has != safetensors.BF16 {
			t.Errorf("the checkpoint holds %s as %s", vector, has)
		}
	}
	wide := tiny(t, func(c *config.Config) { short(c); c.Optimizer.Moments = "fp32" })
	train(t, wide, 1, "")
	_, narrowState := savedProgress(t, cfg, 4)
	_, wideState := savedProgress(t, wide, 4)
	if slices.Equal(narrowState["master/lm_head.weight"], wideState["master/lm_head.weight"]) {
		t.Error("BF16 moments train to the bits of FP32 moments")
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
