// Package pipe runs pipeline schedules: the actions of a rank, over the stages of a model that it
// has. See package pipeline for the schedules, and [moe.NewStage] for the stages.
//
// Gradients, losses and loads have the bits of a single rank that runs the micro-batches one after
// the other, in every schedule: each stage takes the micro-batches in their order.
package pipe

import (
	"cmp"
	"fmt"
	"slices"

	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

// Plan is what the ranks of a pipeline agree on before they run a schedule.
type Plan struct {
	Schedule *pipeline.Schedule
	// Overlap makes the actions of pairs take turns instead of following each other. Set it before
	// Build.
	Overlap bool

	stages  []moe.Stage
	ahead   int             // the stage with layers that predict further ahead; negative: none
	holders []int           // the rank of each stage
	boxes   map[message]int // where its receiver finds it
	most    int             // boxes of a rank
}

// message is what one stage sends to another for a micro-batch.
type message struct {
	to         int // stage
	content    content
	gradient   bool // of the content, on the way back
	microbatch int
}

// content is a tensor of [moe.Boundary].
type content uint8

const (
	hidden      content = iota // from each stage to the next
	embedded                   // from the first stage to that with layers that predict further ahead
	aheadHidden                // from that stage to the last
	contents
)

// of returns the tensor of a boundary.
func (c content) of(b *moe.Boundary) *tensor.Tensor {
	return [contents]*tensor.Tensor{&b.Hidden, &b.Embedded, &b.Ahead}[c]
}

// receiver returns the stage to which a stage sends content, or its gradient; none: -1.
func (p *Plan) receiver(from int, c content, gradient bool) int {
	last := len(p.stages) - 1
	begin, end := from, from+1
	switch {
	case c == embedded:
		begin, end = 0, p.ahead
	case c == aheadHidden:
		begin, end = p.ahead, last
	case gradient:
		begin, end = from-1, from
	}
	switch {
	case begin < 0 || begin >= end || end > last:
	case from == begin && !gradient:
		return end
	case from == end && gradient:
		return begin
	}
	return -1
}

// sender returns the stage that sends a message; none: -1.
func (p *Plan) sender(m message) int { return p.receiver(m.to, m.content, !m.gradient) }

// NewPlan plans the messages between the stages of a model, in their order, in a schedule.
func NewPlan(s *pipeline.Schedule, stages []moe.Stage) (*Plan, error) {
	if len(stages) != s.Stages {
		return nil, fmt.Errorf("%d stages for schedule %s, which has %d", len(stages), s.Title(), s.Stages)
	}
	times, err := s.Simulate()
	if err != nil {
		return nil, err
	}
	p := &Plan{Schedule: s, stages: stages, holders: s.Holders(), boxes: map[message]int{}}
	p.ahead = slices.IndexFunc(stages, func(s moe.Stage) bool { return s.Ahead > 0 })
	p.planBoxes(times)
	return p, nil
}

// LastInFlight returns the most passes of the last stage that are in flight at once.
func (p *Plan) LastInFlight() (most int) {
	last, now := p.Schedule.Stages-1, 0
	for _, slot := range p.Schedule.Ranks[p.holders[last]] {
		for _, a := range slot {
			switch {
			case a.Stage != last:
			case a.Kind == pipeline.Forward:
				now++
				most = max(most, now)
			case a.Kind == pipeline.Backward || a.Kind == pipeline.WeightGrad:
				now--
			}
		}
	}
	return most
}

// Stages returns the stages of the model, in their order.
func (p *Plan) Stages() []moe.Stage { return p.stages }

// MessagesBetween returns the number of messages of a step, of those between ranks that count.
func (p *Plan) MessagesBetween(count func(from, to int) bool) (n int) {
	for m := range p.boxes {
		if count(p.holders[p.sender(m)], p.holders[m.to]) {
			n++
		}
	}
	return n
}

// Boxes returns the number of boxes that a rank needs for messages.
func (p *Plan) Boxes() int { return p.most }

// transfer is a message with the times between which it takes a box.
type transfer struct {
	message
	sender, receiver int // ranks
	begin, end       float64
}

// boxMargin is how long a box is empty in the simulation before the next message: as long as a
// backward pass takes. Then senders seldom wait for boxes, although real actions take other times.
const boxMargin = 2

// planBoxes gives each message a box of its receiver. A box has messages of one sender. It may have
// several, each after the one before it was received in the simulation. So a sender that waits for
// an empty box waits for what comes earlier in an order in which all actions are possible.
func (p *Plan) planBoxes(times *pipeline.Timeline) {
	type link struct{ sender, receiver int }
	type box struct {
		number int
		free   float64 // from when on
	}
	boxes, count := map[link][]box{}, make([]int, len(p.Schedule.Ranks))
	for _, t := range p.transfers(times) {
		l := link{t.sender, t.receiver}
		at := slices.IndexFunc(boxes[l], func(b box) bool { return b.free+boxMargin <= t.begin })
		if at < 0 {
			at = len(boxes[l])
			boxes[l] = append(boxes[l], box{number: count[t.receiver]})
			count[t.receiver]++
		}
		boxes[l][at].free = t.end
		p.boxes[t.message] = boxes[l][at].number
	}
	p.most = slices.Max(count)
}

// transfers returns the messages between ranks, in the order in which they are sent.
func (p *Plan) transfers(times *pipeline.Timeline) (all []transfer) {
	slots := slotsOf(times)
	for m := range p.messages {
		from, kind := p.sender(m), pipeline.Forward
		if from < 0 || p.holders[from] == p.holders[m.to] {
			continue
		}
		if m.gradient {
			kind = pipeline.InputGrad
		}
		all = append(all, transfer{
			message: m, sender: p.holders[from], receiver: p.holders[m.to],
			begin: slots[pipeline.Action{Stage: from, Kind: kind, Microbatch: m.microbatch}].Begin,
			end:   slots[pipeline.Action{Stage: m.to, Kind: kind, Microbatch: m.microbatch}].End,
		})
	}
	slices.SortStableFunc(all, func(a, b transfer) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

// messages yields the messages to all stages, including those that none sends.
func (p *Plan) messages(yield func(message) bool) {
	for stage := range p.Schedule.Stages {
		for m := range p.Schedule.Microbatches {
			for c := range contents {
				for _, gradient := range []bool{false, true} {
					if !yield(message{stage, c, gradient, m}) {
						return
					}
				}
			}
		}
	}
}

// slotsOf returns the slot of each action. A backward pass counts as its first half.
func slotsOf(times *pipeline.Timeline) map[pipeline.Action]pipeline.Timed {
	slots := map[pipeline.Action]pipeline.Timed{}
	for _, list := range times.Ranks {
		for _, t := range list {
			for _, a := range t.Slot {
				if a.Kind == pipeline.Backward {
					a.Kind = pipeline.InputGrad
				}
				slots[a] = t
			}
		}
	}
	return slots
}
