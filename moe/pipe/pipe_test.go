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
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

const seq = 32 // tokens per sequence

// config has 8 layers, the first one dense, and 8 experts, 2 of which a token visits.
func config(mtp int) moe.Config {
	c, err := moe.FlavorByName("debug")
	if err != nil {
		panic(err)
	}
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 64, 32, 8, 1, 32
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

// outcome is what a step leaves behind, of all ranks together.
type outcome struct {
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
	if o.loss != want.loss {
		t.Errorf("%s: loss %+v, want %+v", what, o.loss, want.loss)
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

// drawnValues holds what draw has drawn, because drawing takes longer than a step.
var drawnValues sync.Map

// drawKey tells the weights of drawnValues apart.
type drawKey struct {
	name string
	len  int
}

// draw sets the weights and selection biases of a stage, so large that all of them matter, and
// zeroes what the last step has left. It is collective.
func draw(ex *tensor.Exec, m *moe.Model) error {
	for _, g := range m.Groups {
		for _, p := range g.Params {
			if g.Shared && g.Ranks.Rank() > 0 {
				continue
			}
			drawn := moe.Param{Name: p.Name, Init: moe.Init{Kind: moe.Normal, Std: 0.2}}
			if len(p.Dims) == 2 && p.Init.Kind != moe.Normal {
				drawn.Init.Std = 1 / math.Sqrt(float64(p.Dims[1]))
			}
			draw := func() tensor.Tensor {
				values := tensor.New(tensor.FP32, p.Len())
				drawn.Fill(values.F32(), 0, 7)
				if len(p.Dims) == 1 {
					for i := range values.F32() {
						values.F32()[i]++
					}
				}
				return values
			}
			values, ok := drawnValues.Load(drawKey{p.Name, p.Len()})
			if !ok {
				values, _ = drawnValues.LoadOrStore(drawKey{p.Name, p.Len()}, draw())
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

// alone returns the step of one rank without a pipeline: a pass for each of the parts of a batch.
func alone(t *testing.T, cfg moe.Config, precision moe.Precision, all text, parts int) outcome {
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
		m.ZeroGrad()
		each := len(all.inputs) / seq / parts
		for i := range parts {
			b := all.batch(i*each, (i+1)*each)
			b.More = i+1 < parts
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
	dp, ep    int
	bare      bool        // the first stage has the embedding only, and the last one the head
	layout    []moe.Stage // nil: layers are spread evenly
	hosts     []int       // ranks of each host; nil: there is one
	overlap   bool
	turned    func() // called when the actions of a pair take turns
}

// stages returns the stages of the model.
func (s setup) stages() []moe.Stage {
	if s.layout != nil {
		return s.layout
	}
	all := make([]moe.Stage, s.schedule.Stages)
	for i := range all {
		n, at := len(all), i
		if s.bare {
			n, at = n-2, i-1
		}
		cut := func(at int) int { return s.cfg.Layers * min(max(at, 0), n) / n }
		last := i == len(all)-1
		all[i] = moe.Stage{First: cut(at), End: cut(at + 1), Embed: i == 0, Predict: last}
		if last {
			all[i].End, all[i].Ahead = s.cfg.AllLayers(), s.cfg.MTPLayers
		}
	}
	return all
}

// layout returns the stages that letters describe: E is the embedding, t a layer, m the MTP module,
// L the head, and | begins the next stage.
func layout(t *testing.T, cfg moe.Config, text string) (all []moe.Stage) {
	t.Helper()
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
	if at != cfg.AllLayers() {
		t.Fatalf("%q has %d layers, want %d", text, at, cfg.AllLayers())
	}
	return all
}

// run makes a step on all ranks.
func (s setup) run(t *testing.T, all text) outcome {
	t.Helper()
	plan, err := NewPlan(s.schedule, s.stages())
	if err != nil {
		t.Fatal(err)
	}
	plan.Overlap = s.overlap
	ranks := len(s.schedule.Ranks)
	results := make([][]*moe.Model, ranks*s.dp)
	losses := make([]moe.Loss, ranks*s.dp)
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
		r.Turned = s.turned
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
			m.ZeroGrad()
		}
		var parts []moe.Batch
		for i := range s.schedule.Microbatches {
			at := i*s.dp + c.Rank()%s.dp
			parts = append(parts, all.batch(at, at+1))
		}
		if losses[c.Rank()], err = r.Run(ex, parts); err != nil {
			return err
		}
		results[c.Rank()] = r.Models
		if most := plan.InFlight(c.Rank() / s.dp); r.MostInFlight() != most {
			t.Errorf("rank %d: %d passes in flight, want %d", c.Rank(), r.MostInFlight(), most)
		}
		for _, m := range r.Models {
			if m.InFlight() != 0 {
				t.Errorf("rank %d, stage %+v: %d passes in flight at the end", c.Rank(), m.Stage(), m.InFlight())
			}
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
		for _, m := range models {
			o.add(m)
		}
	}
	return o
}

// build returns a rank's stages.
func (s setup) build(c *collective.Comm, plan *Plan) (*Rank, error) {
	l := mesh.Layout{World: c.Size(), PP: len(s.schedule.Ranks), DPReplicate: 1, DPShard: s.dp, EP: s.ep}
	return plan.Build(c, l, seq*s.cfg.Dim*4, func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
		return moe.NewStage(on, s.cfg, s.precision, seq, nil, stage)
	})
}

// All schedules, with stages of one and of several ranks. Each setting runs every second pair.
func TestBitsOfOneRank(t *testing.T) {
	cases := 0
	for setting, c := range []struct {
		precision             string
		mtp, microbatches, dp int
	}{{"bf16", 0, 4, 1}, {"bf16", 1, 8, 2}, {"mxfp8", 1, 4, 2}, {"mxfp8", 1, 8, 1}} {
		s := setup{cfg: config(c.mtp), dp: c.dp}
		var err error
		if s.precision, err = moe.PrecisionByName(c.precision); err != nil {
			t.Fatal(err)
		}
		all := newText(c.microbatches*c.dp, s.cfg.Vocab)
		want := alone(t, s.cfg, s.precision, all, c.microbatches)
		for i, name := range pipeline.Names() {
			for j, size := range [][2]int{{2, 0}, {4, 0}, {2, 3}} {
				if (setting+i+j)%2 > 0 {
					continue
				}
				if s.schedule, err = pipeline.New(name, size[0], size[1], c.microbatches); err != nil {
					continue // such as DualPipeV of 4 ranks, which needs 8 micro-batches
				}
				for s.ep = c.dp; s.ep > 0; s.ep /= 2 {
					s.recompute, s.bare = moe.Recompute(cases%3), s.schedule.Stages > 2 && cases%4 == 0
					what := fmt.Sprintf("%s, %s, dp %d, ep %d, recompute %v, bare %v", c.precision, s.schedule.Title(), c.dp, s.ep, s.recompute, s.bare)
					s.run(t, all).equals(t, what, want)
					cases++
				}
			}
		}
	}
	if cases < 30 {
		t.Errorf("%d cases", cases)
	}
}

// The MTP module may be in the stage before the head, with layers, alone, or with the embedding.
func TestMTPBeforeTheHead(t *testing.T) {
	for _, precision := range []string{"bf16", "mxfp8"} {
		s := setup{cfg: config(1)}
		s.cfg.Layers = 2
		var err error
		if s.precision, err = moe.PrecisionByName(precision); err != nil {
			t.Fatal(err)
		}
		const microbatches = 4
		for dp := 1; dp <= 2; dp++ {
			s.dp, s.ep = dp, dp
			all := newText(microbatches*dp, s.cfg.Vocab)
			want := alone(t, s.cfg, s.precision, all, microbatches)
			for i, c := range []struct {
				name   string
				pp     int
				layout string
			}{
				{"1F1B", 2, "Ettm|L"}, {"1F1B", 4, "Et|t|m|L"}, {"DualPipeV", 2, "E|t|tm|L"},
				{"DualPipeV", 2, "Et|t|m|L"}, {"ZBVZeroBubble", 2, "Et|t|m|L"}, {"Interleaved1F1B", 2, "E|t|tm|L"},
			} {
				if s.schedule, err = pipeline.New(c.name, c.pp, 0, microbatches); err != nil {
					t.Fatal(err)
				}
				s.layout = layout(t, s.cfg, c.layout)
				s.recompute = moe.Recompute(i % 3)
				s.run(t, all).equals(t, fmt.Sprintf("%s, %s, %s, dp %d", precision, s.schedule.Title(), c.layout, dp), want)
			}
		}
	}
}

// lists is the number of random lists.
const lists = 20
