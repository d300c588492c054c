package trainer

// A run in stages gives the bits of one rank that makes the same passes.

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// pipelineRun is a run of 4 passes per step with enough layers for 8 stages.
func pipelineRun(t *testing.T, precision string) Config {
	cfg := layoutRun(t, precision)
	cfg.Steps, cfg.Batch, cfg.MicroBatch, cfg.Seq, cfg.EvalSequences = 2, 16, 4, 32, 8
	cfg.Model.Layers, cfg.Model.BiasSpeed = 7, 0.01
	cfg.SampleTokens, cfg.RecordEvery = 0, 0
	return cfg
}

// inStages puts a run on the ranks of a layout.
func inStages(cfg Config, schedule string, l mesh.Layout) Config {
	cfg.SetLayout(l)
	cfg.PPSchedule, cfg.MicroBatch = schedule, cfg.MicroBatch/l.Batch()
	return cfg
}

func TestOneResultForAllPipelines(t *testing.T) {
	for precision, schedules := range map[string][]string{
		"bf16":  {"1F1B", "ZBVZeroBubble", "InterleavedZeroBubble"},
		"mxfp8": {"Interleaved1F1B", "DualPipeV"},
	} {
		t.Run(precision, func(t *testing.T) {
			want := outcomeOf(t, pipelineRun(t, precision), 1)
			for _, schedule := range schedules {
				for _, l := range []mesh.Layout{
					{World: 2, PP: 2, DPReplicate: 1, DPShard: 1, EP: 1},
					{World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1},
					{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2},
					{World: 8, PP: 2, DPReplicate: 2, DPShard: 2, EP: 2},
				} {
					if schedule == "DualPipeV" && l.PP > 2 {
						continue // it needs 8 micro-batches
					}
					cfg := inStages(pipelineRun(t, precision), schedule, l)
					outcomeFrom(t, cfg, train(t, cfg, l.World, "")).equals(t, fmt.Sprintf("%s, %v", schedule, l), want)
				}
			}
		})
	}
}

// A checkpoint of a pipeline resumes in any other layout, and the other way round.
func TestPipelineResumes(t *testing.T) {
	whole := pipelineRun(t, "bf16")
	want := outcomeFrom(t, whole, train(t, whole, 1, ""))
	want.steps, want.evals = want.steps[1:], nil
	layouts := []mesh.Layout{mesh.Default(1), {World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 1}, {World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1}}
	for _, from := range layouts {
		saved := inStages(pipelineRun(t, "bf16"), "1F1B", from)
		saved.SaveEvery, saved.Keep = 1, 9
		train(t, saved, from.World, "")
		for _, to := range layouts {
			cfg := inStages(pipelineRun(t, "bf16"), "ZBVZeroBubble", to)
			got := outcomeFrom(t, cfg, train(t, cfg, to.World, filepath.Join(saved.Out, "step-00000001")))
			got.evals = nil
			got.equals(t, fmt.Sprintf("%v resumed in %v", from, to), want)
		}
	}
}

// A bit that flips in the gradients of any stage is found, and the step is computed again.
func TestPipelineGuardsActivations(t *testing.T) {
	want := outcomeOf(t, pipelineRun(t, "bf16"), 1)
	for stage, name := range []string{"dense gradients of rank 1", "expert gradients of rank 3"} {
		cfg := inStages(pipelineRun(t, "bf16"), "ZBVZeroBubble", mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2})
		cfg.Out = filepath.Join(t.TempDir(), "run")
		var attempts tries
		got, err := guarded(t, cfg, 4, "", func(r *rank, computed bool) {
			if computed && attempts.next(r) == 1 && r.progress.Step == 1 && r.comm.Rank() == 1+2*stage {
				groups := r.models()[1].Groups // its second stage
				groups[1+stage].Grad.Bytes()[groups[1+stage].Grad.Len()*2] ^= 1
			}
		})
		text := "step 2: " + name + " changed in memory: the step is computed again"
		if err != nil || !slices.Equal(got.texts(), []string{text}) {
			t.Fatalf("%v, alarms %q, want %q", err, got.texts(), text)
		}
		outcomeFrom(t, cfg, got).equals(t, name, want)
	}
}

// A bit that flips in weights or in the optimizer's state of any stage is found and restored. The
// alarm names the rank, by its number among all ranks.
func TestPipelineGuardsMemory(t *testing.T) {
	whole := pipelineRun(t, "bf16")
	whole.Steps = 4
	want := outcomeOf(t, whole, 1)
	cfg := inStages(whole, "ZBVZeroBubble", mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2})
	cfg.Out, cfg.Guard.Memory = filepath.Join(t.TempDir(), "run"), 1
	flips := []struct {
		alarm string
		of    func(r *rank) tensor.Tensor
	}{
		{"norm weights of rank 0 have changed in memory", func(r *rank) tensor.Tensor { return r.models()[1].Groups[0].Work }},
		{"expert weights of rank 1 have changed in memory", func(r *rank) tensor.Tensor { return r.models()[0].Groups[2].Work }},
		{"selection biases of rank 2 have changed in memory", func(r *rank) tensor.Tensor { return r.models()[1].Routings()[0].Bias }},
		{"exp_avg of the expert group", func(r *rank) tensor.Tensor { return stateOf(r, 16) }},
	}
	var attempts tries
	got, err := guarded(t, cfg, 4, "", func(r *rank, computed bool) {
		if step := r.progress.Step; computed && attempts.next(r) == 1 && r.comm.Rank() == step {
			flips[step].of(r).Bytes()[9] ^= 4
		}
	})
	alarms := got.texts()
	if err != nil || len(alarms) != len(flips) {
		t.Fatalf("%v, alarms %q", err, alarms)
	}
	for i, alarm := range alarms {
		if !strings.Contains(alarm, flips[i].alarm) || !strings.Contains(alarm, fmt.Sprint("of rank ", i, " ")) {
			t.Errorf("%q, want %s", alarm, flips[i].alarm)
		}
	}
	outcomeFrom(t, cfg, got).equals(t, "flips", want)
}

func TestPipelineRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"unknown schedule":                  func(c *Config) { c.PPSchedule = "GPipe" },
		"10 stages for a model of 7 layers": func(c *Config) { c.PP, c.PPSchedule = 5, "ZBVZeroBubble" },
		"batch is 16: give a multiple":      func(c *Config) { c.PPMicrobatches = 3 },
		"sample_tokens is 7":                func(c *Config) { c.SampleTokens = 7 },
		"record_every is 1":                 func(c *Config) { c.RecordEvery = 1 },
		"pp_microbatches is -1":             func(c *Config) { c.PPMicrobatches = -1 },
	} {
		cfg := pipelineRun(t, "bf16")
		cfg.PP = 2
		change(&cfg)
		if err := cfg.Validate(cfg.PP); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	cfg := pipelineRun(t, "bf16")
	cfg.PPMicrobatches = 4
	if err := cfg.Validate(1); err == nil || !strings.Contains(err.Error(), "it needs pp") {
		t.Error(err)
	}
	cfg.PP = 2
	if _, err := PrepareHere(cfg, 2, 1, "", &reports{}); err == nil || !strings.Contains(err.Error(), "stages must be on one host") {
		t.Errorf("on two hosts: %v", err)
	}
}
