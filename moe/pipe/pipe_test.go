package pipe

// A pipeline trains with the bits of one rank that runs the micro-batches one after the other.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

const seq = 32 // tokens per sequence

// config has 4 layers and 8 experts. The first layer is dense. Each token visits 2 experts.
func config(mtp int) moe.Config {
	c, err := moe.FlavorByName("debug")
	if err != nil {
		panic(err)
	}
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 64, 32, 4, 1, 32
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 2, 32, 16, 4, 16
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 8, 2, 32, 1
	c.MTPLayers, c.BalanceAlpha, c.MaxPositions = mtp, 0.01, 64
	return c
}

// text is the global batch: a sequence per micro-batch and data rank.
type text struct{ inputs, targets, first []int32 }

func newText(sequences, vocab int) (t text) {
	rng := rand.New(rand.NewPCG(5, 1))
	for s := range sequences {
		from := 0
		for i := range seq {
			if (i+s)%11 == 7 {
				from = i // a document begins
			}
			t.inputs, t.targets = append(t.inputs, int32(rng.IntN(vocab))), append(t.targets, int32(rng.IntN(vocab)))
			t.first = append(t.first, int32(from))
		}
	}
	return t
}

// batch returns sequences [lo, hi) of the text.
func (t text) batch(lo, hi int) moe.Batch {
	return moe.Batch{
		Inputs: t.inputs[lo*seq : hi*seq], Targets: t.targets[lo*seq : hi*seq], First: t.first[lo*seq : hi*seq],
		Seq: seq, GlobalSequences: len(t.inputs) / seq,
	}
}

// outcome is what an evaluation and a step leave behind, of all ranks together.
type outcome struct {
	eval  moe.Loss
	loss  moe.Loss
	loads map[int][]int64 // by layer
	grads map[string][]float32
}

func newOutcome() outcome {
	return outcome{loads: map[int][]int64{}, grads: map[string][]float32{}}
}

// add adds what a model of one rank has.
func (o *outcome) add(m *moe.Model) {
	for _, r := range m.Routings() {
		if o.loads[r.Layer] == nil {
			o.loads[r.Layer] = make([]int64, len(r.Load))
		}
		for e, n := range r.Load {
			o.loads[r.Layer][e] += n
		}
	}
	for _, g := range m.Groups {
		for _, p := range g.Params {
			o.grads[p.Name] = slices.Clone(p.Grad.F32())
		}
	}
}

func (o outcome) equals(t *testing.T, what string, want outcome) {
	t.Helper()
	if o.loss != want.loss || o.eval != want.eval {
		t.Errorf("%s: loss %+v, evaluation %+v, want %+v, %+v", what, o.loss, o.eval, want.loss, want.eval)
	}
	if !maps.EqualFunc(o.loads, want.loads, slices.Equal) {
		t.Errorf("%s: loads %v, want %v", what, o.loads, want.loads)
	}
	if got, want := slices.Sorted(maps.Keys(o.grads)), slices.Sorted(maps.Keys(want.grads)); !slices.Equal(got, want) {
		t.Errorf("%s: parameters %v, want %v", what, got, want)
	}
	for name, g := range want.grads {
		if !slices.EqualFunc(o.grads[name], g, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%s: the gradient of %s differs", what, name)
		}
	}
}

// divided reports whether the ranks of a group sum its gradients.
func divided(g *moe.Group) bool { return g.Ranks != nil && g.Ranks.Size() > 1 && !g.Shared }

// sum completes such gradients on all ranks, which an optimizer would only need a part of.
func sum(ex *tensor.Exec, m *moe.Model) error {
	for _, g := range m.Groups {
		if !divided(g) {
			continue
		}
		if err := g.SumGrad(ex); err != nil {
			return err
		}
		n := g.Len() / g.Ranks.Size()
		own := slices.Clone(g.Grad.F32()[g.Ranks.Rank()*n:][:n])
		if err := collective.AllGather(g.Ranks, g.Grad.F32(), own); err != nil {
			return err
		}
	}
	return nil
}

// drawnValues holds what draw has drawn, by name, because drawing takes longer than a step.
var drawnValues sync.Map

// draw sets the weights and selection biases of a stage, so large that all of them matter. It is
// collective.
func draw(ex *tensor.Exec, m *moe.Model) error {
	for _, g := range m.Groups {
		for _, p := range g.Params {
			if g.Shared && g.Ranks.Rank() > 0 {
				continue
			}
			values, ok := drawnValues.Load(p.Name)
			if !ok {
				std := 0.2
				if len(p.Dims) == 2 && p.Init.Kind != moe.Normal {
					std = 1 / math.Sqrt(float64(p.Dims[1]))
				}
				drawn := tensor.New(tensor.FP32, p.Len())
				(&moe.Param{Name: p.Name, Init: moe.Init{Kind: moe.Normal, Std: std}}).Fill(drawn.F32(), 0, 7)
				if len(p.Dims) == 1 {
					for i := range drawn.F32() {
						drawn.F32()[i]++
					}
				}
				values, _ = drawnValues.LoadOrStore(p.Name, drawn)
			}
			tensor.Convert(nil, p.Work.Reshape(p.Len()).Mat(), values.(tensor.Tensor).Mat())
		}
		if g.Ranks != nil {
			if err := g.Ranks.Barrier(); err != nil {
				return err
			}
		}
		if err := g.Refresh(ex); err != nil {
			return err
		}
	}
	for _, r := range m.Routings() {
		for e := range r.Bias.F32() {
			r.Bias.F32()[e] = 0.1 * float32(math.Sin(float64(7*e+r.Layer)))
		}
	}
	return nil
}

// alone returns the evaluation and the step of one rank without a pipeline: a pass for each part of
// the batch. dp sequences are evaluated, and each part has as many.
func alone(t *testing.T, cfg moe.Config, precision moe.Precision, all text, dp int) outcome {
	t.Helper()
	o := newOutcome()
	err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
		m, err := moe.New(cfg, precision, seq, c, nil)
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		if err := draw(ex, m); err != nil {
			return err
		}
		if o.eval, err = m.Eval(ex, all.batch(0, dp)); err != nil {
			return err
		}
		m.ZeroGrad()
		n := len(all.inputs) / seq
		for i := 0; i < n; i += dp {
			b := all.batch(i, i+dp)
			b.More = i+dp < n
			loss, err := m.Train(ex, b)
			if err != nil {
				return err
			}
			o.loss.Add(loss)
		}
		o.add(m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// setup is a pipeline whose stages have dp ranks each, in groups of ep that hold all experts.
type setup struct {
	cfg       moe.Config
	precision moe.Precision
	recompute moe.Recompute
	schedule  *pipeline.Schedule
	stages    []moe.Stage
	dp, ep    int
	hosts     []int // ranks of each host; nil: there is one
	overlap   bool
	turns     atomic.Int64 // ranks whose pairs of actions took turns
}

// spread returns stages with the layers spread evenly, without an MTP module.
func spread(cfg moe.Config, stages int) (all []moe.Stage) {
	for i := range stages {
		all = append(all, moe.Stage{First: cfg.Layers * i / stages, End: cfg.Layers * (i + 1) / stages, Embed: i == 0, Predict: i == stages-1})
	}
	return all
}

// layout returns the stages that letters describe: E is the embedding, t a layer, m the MTP module,
// L the head, and | begins the next stage.
func layout(text string) (all []moe.Stage) {
	at := 0
	for part := range strings.SplitSeq(text, "|") {
		ahead := strings.Count(part, "m")
		layers := strings.Count(part, "t") + ahead
		all = append(all, moe.Stage{
			First: at, End: at + layers, Ahead: ahead,
			Embed: strings.Contains(part, "E"), Predict: strings.Contains(part, "L"),
		})
		at += layers
	}
	return all
}

// run makes an evaluation and a step on all ranks.
func (s *setup) run(t *testing.T, all text) outcome {
	t.Helper()
	plan, err := NewPlan(s.schedule, s.stages)
	if err != nil {
		t.Fatal(err)
	}
	plan.Overlap = s.overlap
	ranks := len(s.schedule.Ranks)
	results := make([][]*moe.Model, ranks*s.dp)
	losses, evals := make([]moe.Loss, ranks*s.dp), make([]moe.Loss, ranks*s.dp)
	hosts := s.hosts
	if hosts == nil {
		hosts = []int{ranks * s.dp}
	}
	worlds := collective.NewHosts(hosts...)
	for _, w := range worlds {
		w.SetLimits(collective.Limits{Wait: time.Minute}) // for messages that are lost
	}
	err = errors.Join(worlds.Run(func(c *collective.Comm) error {
		r, err := s.build(c, plan)
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		ex.Poison = true
		for _, m := range r.Models {
			if err := draw(ex, m); err != nil {
				return err
			}
			for _, g := range m.Groups {
				if divided(g) {
					g.Divide(g.Ranks, moe.Division{Counts: slices.Repeat([]int{g.Len() / s.dp}, s.dp)})
				}
			}
			m.Recompute = s.recompute
		}
		own := c.Rank() % s.dp
		if evals[c.Rank()], err = r.Eval(ex, all.batch(own, own+1)); err != nil {
			return err
		}
		for _, m := range r.Models {
			m.ZeroGrad()
		}
		var parts []moe.Batch
		for i := range s.schedule.Microbatches {
			at := i*s.dp + own
			parts = append(parts, all.batch(at, at+1))
		}
		if losses[c.Rank()], err = r.Run(ex, parts); err != nil {
			return err
		}
		results[c.Rank()] = r.Models
		if r.twin != nil {
			s.turns.Add(1)
		}
		if len(r.passes) > 0 {
			t.Errorf("rank %d: %d passes in flight at the end", c.Rank(), len(r.passes))
		}
		for _, m := range r.Models {
			if err := sum(ex, m); err != nil {
				return err
			}
		}
		return c.Barrier()
	})...)
	if err != nil {
		t.Fatal(err)
	}
	o := newOutcome()
	for r, models := range results {
		o.loss.Add(losses[r])
		o.eval.Add(evals[r])
		for _, m := range models {
			o.add(m)
		}
	}
	return o
}

// build returns a rank's stages.
func (s *setup) build(c *collective.Comm, plan *Plan) (*Rank, error) {
	l := mesh.Layout{World: c.Size(), PP: len(s.schedule.Ranks), DPReplicate: 1, DPShard: s.dp, EP: s.ep}
	return plan.Build(c, l, seq*s.cfg.Dim*4, func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
		return moe.NewStage(on, s.cfg, s.precision, seq, nil, stage)
	})
}

// Every schedule gives the bits of one rank: with stages of one and of several ranks, in pairs that
// overlap, on hosts that cut the pipeline between stages and between the ranks of a stage, and with
// the MTP module in the stage before the head, alone, with layers, or with the embedding.
func TestBitsOfOneRank(t *testing.T) {
	type key struct {
		precision string
		cfg       moe.Config
		parts, dp int
	}
	wants := map[key]outcome{}
	for i, c := range []struct {
		schedule                  string
		pp, perRank, microbatches int
		precision                 string
		dp, ep                    int
		stages                    string // empty: layers are spread evenly, without an MTP module
		hosts                     []int
		overlap                   bool
	}{
		{schedule: "1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 1, ep: 1},
		{schedule: "1F1B", pp: 4, microbatches: 8, precision: "bf16", dp: 1, ep: 1, stages: "E|tt|tt|mL"},
		{schedule: "1F1B", pp: 4, microbatches: 4, precision: "mxfp8", dp: 2, ep: 1},
		{schedule: "1F1B", pp: 2, microbatches: 4, precision: "mxfp8", dp: 1, ep: 1, stages: "Ettt|tmL"},
		{schedule: "1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Ettttm|L"},
		{schedule: "1F1B", pp: 4, microbatches: 4, precision: "mxfp8", dp: 1, ep: 1, stages: "Ett|tt|m|L"},
		{schedule: "1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Ett|ttmL", hosts: []int{2, 2}},
		{schedule: "1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Ett|ttmL", hosts: []int{1, 3}},
		{schedule: "Interleaved1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 1, ep: 1},
		{schedule: "Interleaved1F1B", pp: 2, perRank: 3, microbatches: 8, precision: "mxfp8", dp: 1, ep: 1, stages: "E|t|t|t|t|mL"},
		{schedule: "Interleaved1F1B", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 1, stages: "E|t|tttm|L"},
		{schedule: "InterleavedZeroBubble", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Et|t|t|tmL"},
		{schedule: "InterleavedZeroBubble", pp: 4, microbatches: 8, precision: "mxfp8", dp: 1, ep: 1, stages: "E|t|t|t|t|t|m|L"},
		{schedule: "ZBVZeroBubble", pp: 2, microbatches: 4, precision: "bf16", dp: 1, ep: 1},
		{schedule: "ZBVZeroBubble", pp: 4, microbatches: 8, precision: "bf16", dp: 1, ep: 1, stages: "E|t|t|t|t|t|t|mL"},
		{schedule: "ZBVZeroBubble", pp: 2, microbatches: 4, precision: "nvfp4", dp: 2, ep: 1, stages: "E|tt|tt|mL"},
		{schedule: "ZBVZeroBubble", pp: 2, microbatches: 4, precision: "mxfp8", dp: 1, ep: 1, stages: "Ett|tt|m|L"},
		{schedule: "DualPipeV", pp: 2, microbatches: 8, precision: "mxfp8", dp: 1, ep: 1},
		{schedule: "DualPipeV", pp: 4, microbatches: 8, precision: "bf16", dp: 1, ep: 1, stages: "E|t|t|t|t|t|t|mL"},
		{schedule: "DualPipeV", pp: 2, microbatches: 4, precision: "bf16", dp: 1, ep: 1, stages: "E|tt|ttm|L"},
		{schedule: "DualPipeV", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Et|t|t|tmL", hosts: []int{1, 1, 1, 1}},
		{schedule: "DualPipeV", pp: 2, microbatches: 4, precision: "bf16", dp: 2, ep: 2, stages: "Et|t|t|tmL", hosts: []int{1, 3}, overlap: true},
		{schedule: "DualPipeV", pp: 2, microbatches: 8, precision: "bf16", dp: 2, ep: 2, stages: "Et|t|t|tmL", overlap: true},
		{schedule: "DualPipeV", pp: 2, microbatches: 8, precision: "mxfp8", dp: 2, ep: 1, stages: "Et|t|t|tmL", overlap: true},
	} {
		s := &setup{dp: c.dp, ep: c.ep, hosts: c.hosts, overlap: c.overlap, recompute: moe.Recompute(i % 3)}
		s.cfg = config(strings.Count(c.stages, "m"))
		var err error
		if s.precision, err = moe.PrecisionByName(c.precision); err != nil {
			t.Fatal(err)
		}
		if s.schedule, err = pipeline.New(c.schedule, c.pp, c.perRank, c.microbatches); err != nil {
			t.Fatal(err)
		}
		if s.stages = spread(s.cfg, s.schedule.Stages); c.stages != "" {
			s.cfg.Layers = strings.Count(c.stages, "t")
			s.stages = layout(c.stages)
		}
		all := newText(c.microbatches*c.dp, s.cfg.Vocab)
		k := key{c.precision, s.cfg, c.microbatches, c.dp}
		if _, ok := wants[k]; !ok {
			wants[k] = alone(t, s.cfg, s.precision, all, c.dp)
		}
		s.run(t, all).equals(t, fmt.Sprintf("%s, %s, %s, dp %d, ep %d, hosts %v, overlap %v", s.schedule.Title(), c.stages, c.precision, c.dp, c.ep, c.hosts, c.overlap), wants[k])
		if turns := s.turns.Load() > 0; turns != c.overlap {
			t.Errorf("%s: actions overlap: %v", s.schedule.Title(), turns)
		}
	}
}
