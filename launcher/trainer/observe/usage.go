package observe

// What the ranks of a run move and hold: measured, for comparison with LayoutTraffic and
// LayoutMemory.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
)

// UsageMeter counts the bytes that a rank moves inside steps. It is an [observer].
type UsageMeter struct {
	Comm  *collective.Comm // all ranks
	Links Links
	State *state.TrainState
	steps int
	moved int64 // in finished steps
	begin int64 // moved since the communicators were created, when the step began
}

// Before implements [observer].
func (u *UsageMeter) Before(int) { u.begin = u.Links.moved() }

// After implements [observer].
func (u *UsageMeter) After(FinishedStep) error {
	u.steps++
	u.moved += u.Links.moved() - u.begin
	return nil
}

// held returns the bytes that this rank holds. Those of a shared group count for the first of its
// ranks, except for sums over passes: each rank has those of its own rows.
func (u *UsageMeter) held() (m events.Memory) {
	for _, g := range u.State.Groups() {
		m.Gradients += int64(g.PassBytes())
		if g.Shared && g.Ranks.Rank() > 0 {
			continue
		}
		m.Weights += int64(len(g.Work.Bytes()))
		m.Gradients += int64(len(g.Grad.Bytes()))
		for t := range g.Weights {
			if t.Buffer() != g.Work.Buffer() { // a quantized copy
				m.Weights += int64(len(t.Bytes()))
			}
		}
	}
	for _, t := range u.State.Optim.State {
		m.Optimizer += int64(len(t.Bytes()))
	}
	return m
}

// gather returns the mean of all ranks. It is collective.
func (u *UsageMeter) gather() (record.Usage, error) {
	c, m := u.Comm, u.held()
	sums := []float64{float64(u.moved), float64(m.Weights), float64(m.Gradients), float64(m.Optimizer)}
	if err := collective.AllReduce(c, sums, collective.Sum); err != nil {
		return record.Usage{}, fmt.Errorf("summing what ranks moved and hold: %w", err)
	}
	n := float64(c.Size())
	return record.Usage{
		Steps: u.steps, Moved: sums[0] / n / float64(max(u.steps, 1)),
		Weights: sums[1] / n, Gradients: sums[2] / n, Optimizer: sums[3] / n,
	}, nil
}
