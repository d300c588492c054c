package pipe

// What stages send each other, lists of random schedules, and plans that cannot be.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

// A micro-batch has a tensor and its gradient between neighbouring stages, and for the MTP module
// the embedded targets and, if the head is in another stage, the hidden state with their gradients.
func TestMessages(t *testing.T) {
	const microbatches = 3
	s, err := pipeline.New("1F1B", 4, 0, microbatches)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(1)
	cfg.Layers = 3
	plain := cfg
	plain.MTPLayers = 0
	for _, c := range []struct {
		cfg    moe.Config
		layout string
		want   int
	}{{plain, "E|tt|t|L", 6}, {cfg, "E|tt|t|mL", 8}, {cfg, "E|tt|tm|L", 10}, {cfg, "Ett|t|m|L", 10}} {
		plan, err := NewPlan(s, layout(t, c.cfg, c.layout))
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.MessagesBetween(func(int, int) bool { return true }); got != microbatches*c.want {
			t.Errorf("%s: %d messages, want %d per micro-batch", c.layout, got, c.want)
		}
	}
}

// Boxes are shared where a schedule leaves room between messages, and have one sender each.
func TestBoxes(t *testing.T) {
	const microbatches = 16
	for _, c := range []struct {
		name          string
		ranks, expect int
	}{{"1F1B", 2, 2}, {"1F1B", 4, 6}, {"Interleaved1F1B", 2, 5}, {"ZBVZeroBubble", 2, 3}, {"DualPipeV", 4, 8}} {
		s := setup{cfg: config(0)}
		var err error
		if s.schedule, err = pipeline.New(c.name, c.ranks, 0, microbatches); err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(s.schedule, s.stages())
		if err != nil {
			t.Fatal(err)
		}
		if plan.Boxes() != c.expect {
			t.Errorf("%s: %d boxes, want %d", s.schedule.Title(), plan.Boxes(), c.expect)
		}
		times, err := s.schedule.Simulate(pipeline.Costs{F: 1, I: 1, W: 1})
		if err != nil {
			t.Fatal(err)
		}
		type box struct{ receiver, number int }
		last := map[box]transfer{}
		for _, m := range plan.transfers(times) {
			at := box{m.receiver, plan.boxes[m.message]}
			if was, ok := last[at]; ok && (was.sender != m.sender || was.end+boxMargin > m.begin) {
				t.Errorf("%s: %+v in the box of %+v", s.schedule.Title(), m, was)
			}
			last[at] = m
		}
	}
}

// Any list that is legal gives these bits, also one that takes micro-batches in another order on
// each stage.
func TestRandomLists(t *testing.T) {
	const microbatches = 5
	rng := rand.New(rand.NewPCG(3, 4))
	s := setup{cfg: config(1), precision: moe.Unquantized(tensor.BF16), dp: 1, ep: 1}
	s.cfg.Layers = 6
	all := newText(microbatches, s.cfg.Vocab)
	want := alone(t, s.cfg, s.precision, all, microbatches)
	for i := range lists {
		stages := 1 + rng.IntN(6)
		s.schedule = pipeline.Random(rng, 1+rng.IntN(min(stages, 4)), stages, microbatches)
		if s.layout = nil; stages > 1 && i%2 == 1 {
			s.layout = layout(t, s.cfg, "E"+strings.Repeat("t|", stages-2)+strings.Repeat("t", s.cfg.Layers-stages+2)+"m|L")
		}
		s.run(t, all).equals(t, fmt.Sprintf("list %d, %v", i, s.schedule.Ranks), want)
	}
}

func TestRefuses(t *testing.T) {
	s := setup{cfg: config(0), precision: moe.Unquantized(tensor.FP32), dp: 1, ep: 1}
	var err error
	if s.schedule, err = pipeline.New("1F1B", 1, 0, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(&pipeline.Schedule{Stages: 1, Microbatches: 1, Ranks: [][]pipeline.Slot{nil}}, nil); err == nil || !strings.Contains(err.Error(), "0F0 is missing") {
		t.Errorf("an empty list: %v", err)
	}
	plan, err := NewPlan(s.schedule, s.stages())
	if err != nil {
		t.Fatal(err)
	}
	on := moe.OneGroup(collective.NewWorld(1).Comm(0))
	build := func(cfg moe.Config, part moe.Stage) *moe.Model {
		m, err := moe.NewStage(on, cfg, s.precision, seq, nil, part)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := build(s.cfg, s.stages()[0])
	for want, stages := range map[string][]*moe.Model{
		"a pipeline of 2 stages": {whole, whole},
		"rank 0 has stage 0":     {nil},
		"in the plan":            {build(s.cfg, moe.Stage{End: 1})},
		"mtp_layers = 1":         {build(config(1), config(1).Whole())},
	} {
		if _, err := plan.New(0, stages, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	e, err := plan.New(0, []*moe.Model{whole}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, stages := range map[string][]moe.Stage{
		"2 stages for schedule": {{}, {}},
		"the last one the head": {{End: s.cfg.Layers, Embed: true}},
	} {
		if _, err := NewPlan(s.schedule, stages); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := e.Run(tensor.NewExec(), nil); err == nil || !strings.Contains(err.Error(), "0 parts of a batch for a schedule of 2") {
		t.Error(err)
	}
}
