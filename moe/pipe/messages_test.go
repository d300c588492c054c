package pipe

// What stages send each other, and plans that cannot be.

import (
	"strings"
	"testing"

	"spmoe/collective/pipeline"
	"spmoe/moe"
)

// A micro-batch has a tensor and its gradient between neighbouring stages, and for the MTP module
// the embedded targets and, if the head is in another stage, the hidden state with their gradients.
func TestMessages(t *testing.T) {
	const microbatches = 3
	s, err := pipeline.New("1F1B", 4, 0, microbatches)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layout string
		want   int
	}{{"E|tt|t|L", 6}, {"E|tt|t|mL", 8}, {"E|tt|tm|L", 10}, {"Ett|t|m|L", 10}} {
		plan, err := NewPlan(s, layout(c.layout))
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
		s, err := pipeline.New(c.name, c.ranks, 0, microbatches)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(s, spread(config(0), s.Stages))
		if err != nil {
			t.Fatal(err)
		}
		if plan.Boxes() != c.expect {
			t.Errorf("%s: %d boxes, want %d", s.Title(), plan.Boxes(), c.expect)
		}
		times, err := s.Simulate()
		if err != nil {
			t.Fatal(err)
		}
		type box struct{ receiver, number int }
		last := map[box]transfer{}
		for _, m := range plan.transfers(times) {
			at := box{m.receiver, plan.boxes[m.message]}
			if was, ok := last[at]; ok && (was.sender != m.sender || was.end+boxMargin > m.begin) {
				t.Errorf("%s: %+v in the box of %+v", s.Title(), m, was)
			}
			last[at] = m
		}
	}
}

func TestRefuses(t *testing.T) {
	s, err := pipeline.New("1F1B", 1, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(s, []moe.Stage{{}, {}}); err == nil || !strings.Contains(err.Error(), "2 stages for schedule") {
		t.Error(err)
	}
}
