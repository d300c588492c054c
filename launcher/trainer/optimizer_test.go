package trainer

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// useMuon sets Muon, which clips some heads of a layoutRun.
func useMuon(o *config.Optimizer) { o.Name, o.QKClip, o.LR = "muon", 0.02, 0.02 }

// A checkpoint of another optimizer is refused before any rank starts.
func TestResumeWithAnotherOptimizer(t *testing.T) {
	byMuon, byAdamW := tiny(t, func(c *config.Config) { c.Optimizer.Name = "muon" }), tiny(t, nil)
	train(t, byMuon, 1, "")
	train(t, byAdamW, 1, "")
	for _, c := range []struct {
		cfg  config.Config
		name string
		want string
	}{
		{byMuon, "", "was trained with optimizer muon, not adamw: leave optimizer.name out"},
		{byAdamW, "muon", "was trained with optimizer adamw, not muon"},
		{byAdamW, "adamw", ""},
	} {
		cfg := c.cfg
		cfg.Optimizer.Name = c.name
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
	before, after := convertState(t, wide, narrow)
	for name, want := range before {
		rounded := make([]tensor.BFloat16, len(want))
		if strings.HasPrefix(name, "exp_avg") {
			tensor.Round(rounded, want)
			tensor.Widen(want, rounded)
		}
		if !slices.Equal(after[name], want) {
			t.Errorf("FP32 to BF16: %s differs", name)
		}
	}
	train(t, narrow, 2, filepath.Join(wide.Out, "step-00000002"))
	again := wide
	again.Out = filepath.Join(t.TempDir(), "wide")
	before, after = convertState(t, narrow, again)
	for name, want := range before {
		if !slices.Equal(after[name], want) {
			t.Errorf("BF16 to FP32: %s differs", name)
		}
	}
}

// convertState returns the state of the last checkpoint of a run, and that state as a run of
// another configuration holds it.
func convertState(t *testing.T, from, to config.Config) (before, after map[string][]float32) {
	t.Helper()
	_, before = savedProgress(t, from, from.Steps)
	after = map[string][]float32{}
	onRanks(t, to, 1, filepath.Join(from.Out, fmt.Sprintf("step-%08d", from.Steps)), func(r *rank) error {
		for _, p := range r.Pieces() {
			wide := p.Data
			if half := p.BF16; half != nil {
				wide = make([]float32, p.Len())
				for i := range wide {
					wide[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(half[2*i:])) << 16)
				}
			}
			after[p.Name] = append(after[p.Name], wide...)
		}
		return nil
	})
	return before, after
}

// Estimates follow the optimizer, and a vault has room for its state, however unevenly ranks share
// matrices.
func TestOptimizerMemory(t *testing.T) {
	for name, perWeight := range map[string][2]int64{"adamw": {12, 12}, "adamw bf16": {8, 8}, "muon": {8, 12}, "muon bf16": {6, 8}} {
		for _, ranks := range []int{1, 2, 8} {
			cfg := tiny(t, func(c *config.Config) {
				c.Model.Experts = 8
				c.Optimizer.Name, c.Optimizer.Moments, _ = strings.Cut(name, " ")
			})
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
