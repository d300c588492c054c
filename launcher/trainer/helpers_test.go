package trainer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/tensor"
)

// reports keeps what is reported.
type reports struct {
	start   events.Start
	steps   []events.Step
	evals   []events.Eval
	saved   []events.Saved
	alarms  []events.Alarm
	samples []events.Sample

	stopping []events.Stopping
	prof     []events.Profile
	done     []events.Done
	events   []string          // kind and step of each, in order
	onStep   func(events.Step) // called after every reported step, unless nil
}

func (r *reports) note(kind string, step int) {
	r.events = append(r.events, fmt.Sprintf("%s %d", kind, step))
}

func (r *reports) Start(s events.Start) { r.start = s; r.note("start", s.From) }

func (r *reports) Eval(e events.Eval) { r.evals = append(r.evals, e); r.note("eval", e.Step) }

func (r *reports) Saved(s events.Saved) { r.saved = append(r.saved, s); r.note("saved", s.Step) }

func (r *reports) Sample(s events.Sample) { r.samples = append(r.samples, s); r.note("sample", s.Step) }

func (r *reports) Alarm(a events.Alarm) { r.alarms = append(r.alarms, a); r.note("alarm", a.Step) }

func (r *reports) Stopping(s events.Stopping) {
	r.stopping = append(r.stopping, s)
	r.note("stopping", s.Step)
}

func (r *reports) Profile(p events.Profile) { r.prof = append(r.prof, p); r.note("profile", p.Steps) }

func (r *reports) Done(d events.Done) { r.done = append(r.done, d); r.note("done", d.Step) }

func (r *reports) Step(s events.Step) {
	r.steps = append(r.steps, s)
	r.note("step", s.Step)
	if r.onStep != nil {
		r.onStep(s)
	}
}

// tinyModel has every part: dense and MoE layers, shared and routed experts.
func tinyModel() moe.Config {
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		panic(err)
	}
	cfg.Dim, cfg.Layers, cfg.DenseInter, cfg.Heads, cfg.KVRank, cfg.NopeDim, cfg.RopeDim, cfg.ValueDim = 32, 2, 64, 2, 16, 8, 8, 16
	cfg.Experts, cfg.TopK, cfg.ExpertInter = 4, 2, 32
	return cfg
}

// tiny is a run of milliseconds on text that is made for it.
func tiny(t *testing.T, change func(*config.Config)) config.Config {
	t.Helper()
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model = tinyModel()
	cfg.Steps, cfg.Seq, cfg.Batch, cfg.EvalSequences, cfg.SampleTokens, cfg.LogEvery = 4, 32, 8, 4, 0, 1
	cfg.Optimizer.Warmup, cfg.Optimizer.DecayFrac = 2, 0
	dir := t.TempDir()
	cfg.Data, cfg.Out = []string{filepath.Join(dir, "text")}, filepath.Join(dir, "run")
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < 20000 {
		fmt.Fprintf(&b, "rank %d sends %d rows. ", rng.IntN(4), rng.IntN(10))
	}
	if err := os.WriteFile(cfg.Data[0], []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// train runs cfg on n ranks, from a checkpoint unless resume is empty.
func train(t *testing.T, cfg config.Config, n int, resume string) *reports {
	t.Helper()
	r := &reports{}
	job, err := Prepare(cfg, n, resume, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Run(context.Background(), spmd.Goroutines{N: job.ranks}); err != nil && !errors.Is(err, events.ErrInterrupted) {
		t.Fatal(err)
	}
	return r
}

// savedProgress returns the trainer's progress and all tensors from the checkpoint of a step.
func savedProgress(t *testing.T, cfg config.Config, step int) (p state.Progress, tensors map[string][]float32) {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", step)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Meta(&p); err != nil {
		t.Fatal(err)
	}
	tensors = map[string][]float32{}
	for name, shape := range r.Tensors() {
		n := 1
		for _, d := range shape {
			n *= d
		}
		tensors[name] = make([]float32, n)
		if r.DType(name) != safetensors.BF16 {
			err = r.ReadInto(checkpoint.Piece{Name: name, Shape: shape, Data: tensors[name]})
		} else {
			stored := tensor.New(tensor.BF16, n)
			err = r.ReadInto(checkpoint.Piece{Name: name, Shape: shape, BF16: stored.Bytes()})
			tensor.Widen(tensors[name], stored.BF16())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p, tensors
}
