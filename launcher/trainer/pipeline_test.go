package trainer

// A run in stages gives the bits of one rank that makes the same passes.

import (
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
	"spmoe/tensor"
)

// pipelineRun is a run of 4 passes per step with enough layers for 8 stages.
func pipelineRun(t *testing.T, precision string) config.Config {
	cfg := layoutRun(t, precision)
	cfg.Steps, cfg.Batch, cfg.MicroBatch, cfg.Seq, cfg.EvalSequences = 2, 16, 4, 32, 8
	cfg.Model.Layers, cfg.Model.BiasSpeed = 7, 0.01
	cfg.SampleTokens, cfg.RecordEvery = 40, 0 // more than the context
	return cfg
}

// inStages puts a run on the ranks of a layout.
func inStages(cfg config.Config, schedule string, l mesh.Layout) config.Config {
	cfg.SetLayout(l)
	cfg.PPSchedule, cfg.MicroBatch = schedule, cfg.MicroBatch/l.Batch()
	return cfg
}

// Stages have the bits of one rank, one or several per rank, also if the ranks of a stage share
// sequences.
func TestOneResultForAllPipelines(t *testing.T) {
	overlapped := func(c *config.Config) { c.PPOverlap = true }
	for name, c := range map[string]struct {
		precision string
		change    func(*config.Config)
		places    []placed
	}{
		"bf16": {"bf16", func(*config.Config) {}, []placed{
			{schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1}},
			{schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2}},
			{schedule: "InterleavedZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 2, DPShard: 2, EP: 2}},
			{schedule: "Interleaved1F1B", layout: mesh.Layout{World: 2, PP: 2, DPReplicate: 1, DPShard: 1, EP: 1}, change: func(c *config.Config) { c.PPStages = 3 }},
		}},
		"mxfp8": {"mxfp8", func(*config.Config) {}, []placed{
			{schedule: "Interleaved1F1B", layout: mesh.Layout{World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1}},
			{schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2}},
		}},
		"contexts": {"mxfp8", func(c *config.Config) { c.Seq, c.Batch, c.MicroBatch = 64, 8, 0 }, everySecond(
			placed{schedule: "InterleavedZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 2, DPShard: 1, CP: 2, EP: 1}},
			placed{schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}},
			placed{schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, EP: 1}, change: overlapped},
			placed{schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}},
			placed{schedule: "1F1B", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 2, TP: 2, EP: 2}},
			placed{schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 1, TP: 2, EP: 2}, change: overlapped},
		)},
	} {
		t.Run(name, func(t *testing.T) {
			want := sameBits(t, func() config.Config {
				cfg := pipelineRun(t, c.precision)
				c.change(&cfg)
				return cfg
			}, c.places)
			if want.sample == "" {
				t.Error("no sample")
			}
		})
	}
}

// A bit that flips in working weights of any stage is found, and they are published again. One in
// the gradients of any stage is found if the step is computed twice. The alarm and the error name
// the rank by its number among all ranks.
func TestPipelineGuards(t *testing.T) {
	want := reference(t, pipelineRun(t, "bf16"))
	cfg := inStages(pipelineRun(t, "bf16"), "ZBVZeroBubble", mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2})
	cfg.Out, cfg.Guard.Replay = filepath.Join(t.TempDir(), "run"), 2
	injured := func(memory func(g *moe.Group) tensor.Tensor) func(r *rank, computed bool) {
		var attempts tries
		return func(r *rank, computed bool) {
			if computed && attempts.next(r) == 1 && r.Progress.Step == 1 && r.comm.Rank() == 3 {
				memory(r.Models()[1].Groups[2]).Bytes()[9] ^= 4 // of the experts of its second stage
			}
		}
	}
	o, got := outcomeOn(t, cfg, []int{4}, "", injured(func(g *moe.Group) tensor.Tensor { return g.Work }))
	if text := "step 2: expert weights of rank 3 changed in memory: they are published again"; !slices.Equal(got.texts(), []string{text}) {
		t.Fatalf("alarms %q, want %q", got.texts(), text)
	}
	o.equals(t, "a weight", want)
	cfg.Out = filepath.Join(t.TempDir(), "run")
	_, err := guarded(t, cfg, 4, "", injured(func(g *moe.Group) tensor.Tensor { return g.Grad }))
	if text := "rank 3 after step 1: step 2, computed twice, has two gradients of model.layers."; err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %s", err, text)
	}
}

// The record of a run in stages has the loads, choices and quantization errors of all layers, in
// their order.
func TestPipelineRecords(t *testing.T) {
	whole := pipelineRun(t, "mxfp8")
	whole.RecordEvery = 1
	train(t, whole, 1, "")
	want := readRecord(t, whole)
	cfg := inStages(whole, "ZBVZeroBubble", mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2})
	cfg.Out = filepath.Join(t.TempDir(), "run")
	train(t, cfg, 4, "")
	got := readRecord(t, cfg)
	if !reflect.DeepEqual(got.Loads, want.Loads) || len(got.Loads) == 0 {
		t.Errorf("loads %+v, want %+v", got.Loads, want.Loads)
	}
	near := func(a, b record.Number) bool { return math.Abs(float64(a-b)) <= 1e-12*float64(b) }
	if len(got.Quantized) != len(want.Quantized) || len(want.Quantized) == 0 {
		t.Fatalf("%d operands, want %d", len(got.Quantized), len(want.Quantized))
	}
	for i, q := range got.Quantized {
		w := want.Quantized[i]
		if near(q.Signal, w.Signal) && near(q.Noise, w.Noise) {
			q.Signal, q.Noise = w.Signal, w.Noise // added up in another order
		}
		if q != w {
			t.Errorf("%+v, want %+v", q, w)
		}
	}
}
