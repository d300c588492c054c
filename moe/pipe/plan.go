// Package pipe runs pipeline schedules: the actions of a rank, over the stages of a model that it
// has. See package pipeline for the schedules, and [moe.NewStage] for the stages.
//
// Gradients, losses and loads have the bits of a single rank that runs the micro-batches one after
// the other, in every schedule: see [Plan.Part].
package pipe

import (
	"cmp"
	"slices"

	"spmoe/collective/pipeline"
)

// Plan is what the ranks of a pipeline agree on before they run a schedule.
type Plan struct {
	Schedule *pipeline.Schedule

	holders []int           // the rank of each stage
	parts   []int           // of the batch: the one that each micro-batch is
	boxes   map[message]int // where its receiver finds it
	most    int             // boxes of a rank
}

// message is what one stage sends to another for a micro-batch.
type message struct {
	to         int // stage
	content    content
	microbatch int
}

type content uint8

const (
	hidden           content = iota // to the next stage
	hiddenGradient                  // to the stage before
	embedded                        // embedded targets, from the first stage to the last
	embeddedGradient                // back
	contents
)

// from returns the stage that sends a message.
func (m message) from(stages int) int {
	switch m.content {
	case hidden:
		return m.to - 1
	case hiddenGradient:
		return m.to + 1
	case embedded:
		return 0
	}
	return stages - 1
}

// NewPlan checks a schedule and plans its messages. With mtp, the last stage has an MTP module.
func NewPlan(s *pipeline.Schedule, mtp bool) (*Plan, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	times, err := s.Simulate(pipeline.Costs{F: 1, I: 1, W: 1})
	if err != nil {
		return nil, err
	}
	p := &Plan{Schedule: s, holders: s.Holders(), parts: make([]int, s.Microbatches), boxes: map[message]int{}}
	p.numberParts()
	p.planBoxes(times, mtp)
	return p, nil
}

// numberParts numbers the parts of the batch: see Part.
func (p *Plan) numberParts() {
	last, next := p.Schedule.Stages-1, 0
	for _, slot := range p.Schedule.Ranks[p.holders[last]] {
		for _, a := range slot {
			if a.Stage == last && a.Kind == pipeline.Forward {
				p.parts[a.Microbatch] = next
				next++
			}
		}
	}
}

// Part returns which part of the batch a micro-batch of the schedule is. Parts are numbered in the
// order of the last stage's forward passes, which add to the gradient of the head. In the schedules
// that pipeline.New makes, micro-batch i is part i. The gradient of every weight is the sum over
// the parts in their order.
func (p *Plan) Part(microbatch int) int { return p.parts[microbatch] }

// Messages returns the number of messages of a step.
func (p *Plan) Messages() int { return len(p.boxes) }

// Boxes returns the number of boxes that a rank needs for messages.
func (p *Plan) Boxes() int { return p.most }

// transfer is a message with the times between which it takes a box.
type transfer struct {
	message
	sender, receiver int // ranks
	begin, end       float64
}

// planBoxes gives each message a box of its receiver. A box has messages of one sender. It may have
// several, each after the one before it was received in the simulation. So a sender that waits for
// an empty box waits for what comes earlier in an order in which all actions are possible.
func (p *Plan) planBoxes(times *pipeline.Timeline, mtp bool) {
	type link struct{ sender, receiver int }
	type box struct {
		number int
		free   float64 // from when on
	}
	boxes, count := map[link][]box{}, make([]int, len(p.Schedule.Ranks))
	for _, t := range p.transfers(times, mtp) {
		l := link{t.sender, t.receiver}
		at := slices.IndexFunc(boxes[l], func(b box) bool { return b.free <= t.begin })
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
func (p *Plan) transfers(times *pipeline.Timeline, mtp bool) (all []transfer) {
	slots := slotsOf(times)
	for stage := range p.Schedule.Stages {
		for m := range p.Schedule.Microbatches {
			for c := range contents {
				t := transfer{message: message{stage, c, m}}
				from := t.from(p.Schedule.Stages)
				if !p.sends(t.message, from, mtp) {
					continue
				}
				kind := pipeline.Forward
				if c == hiddenGradient || c == embeddedGradient {
					kind = pipeline.InputGrad
				}
				t.sender, t.receiver = p.holders[from], p.holders[stage]
				t.begin = slots[pipeline.Action{Stage: from, Kind: kind, Microbatch: m}].Begin
				t.end = slots[pipeline.Action{Stage: stage, Kind: kind, Microbatch: m}].End
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b transfer) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

// sends reports whether there is such a message between ranks.
func (p *Plan) sends(m message, from int, mtp bool) bool {
	last := p.Schedule.Stages - 1
	switch {
	case from < 0 || from > last || p.holders[from] == p.holders[m.to]:
		return false
	case m.content == embedded:
		return mtp && m.to == last
	case m.content == embeddedGradient:
		return mtp && m.to == 0
	}
	return true
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
