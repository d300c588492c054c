package trainer

// The idle time of a pipeline: measured, and as its schedule says from the measured times of its
// actions.

import (
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/collective/pipeline"
)

// PipelineTimes compares the idle time of a pipeline with the prediction of its schedule.
type PipelineTimes struct {
	Title string // of the schedule
	// share of the ranks' time in which they do nothing, from the first action of any to the last
	Idle, Predicted float64     // medians of the steps
	Kinds           []string    // of actions
	Times           [][]float64 // [stage][kind]: seconds of an action, the median of the steps; 0: none
}

// pipelineMeter measures the steps of a rank in a pipeline.
type pipelineMeter struct {
	schedule *pipeline.Schedule
	comm     *collective.Comm // all ranks
	line     *collective.Comm // those of the pipeline
	since    time.Time        // on all ranks of a process
	steps    []pipelineStep
}

// pipelineStep is what a rank has measured in a step.
type pipelineStep struct {
	begin, end time.Duration
	busy       float64      // seconds
	times      [][2]float64 // of stage · kinds + kind: seconds, and the number of actions
}

const actionKinds = int(pipeline.ReduceGrad)

// begin begins a step.
func (m *pipelineMeter) begin() {
	m.steps = append(m.steps, pipelineStep{begin: time.Since(m.since), times: make([][2]float64, m.schedule.Stages*actionKinds)})
}

// observe measures an action, whose messages have come. It may wait until it can send.
func (m *pipelineMeter) observe(a pipeline.Action, _ bool) (end func()) {
	begin, waited := time.Now(), m.waits()
	return func() { m.count(a, begin, time.Now(), m.waits()-waited) }
}

// waits returns how long the rank has waited for messages.
func (m *pipelineMeter) waits() time.Duration { return m.line.Stats()[collective.KindMessage].Wait }

// count counts an action that waited for a part of its time.
func (m *pipelineMeter) count(a pipeline.Action, begin, end time.Time, waited time.Duration) {
	if a.Kind == pipeline.ReduceGrad {
		return
	}
	s, work := &m.steps[len(m.steps)-1], (end.Sub(begin) - waited).Seconds()
	s.end, s.busy = end.Sub(m.since), s.busy+work
	at := &s.times[a.Stage*actionKinds+int(a.Kind)]
	at[0], at[1] = at[0]+work, at[1]+1
}

// forget forgets the steps so far.
func (m *pipelineMeter) forget() { m.steps = m.steps[:0] }

// gather compares the steps of all ranks with the schedule. It is collective.
func (m *pipelineMeter) gather() (t PipelineTimes, err error) {
	t.Title = m.schedule.Title()
	for k := range actionKinds {
		t.Kinds = append(t.Kinds, pipeline.Kind(k).String())
	}
	var idle, predicted []float64
	all := make([][]float64, m.schedule.Stages*actionKinds) // of steps
	for _, s := range m.steps {
		measured, times, err := m.sum(s)
		if err != nil {
			return t, fmt.Errorf("gathering the times of a pipeline: %w", err)
		}
		line, err := m.schedule.SimulateTimes(func(slot pipeline.Slot) (sum float64) {
			for _, a := range slot {
				if a.Kind != pipeline.ReduceGrad {
					sum += times[a.Stage*actionKinds+int(a.Kind)]
				}
			}
			return sum
		})
		if err != nil {
			return t, err
		}
		idle, predicted = append(idle, measured), append(predicted, line.Bubble())
		for i, v := range times {
			all[i] = append(all[i], v)
		}
	}
	t.Idle, t.Predicted = median(idle), median(predicted)
	for stage := range slices.Chunk(all, actionKinds) {
		var row []float64
		for _, of := range stage {
			row = append(row, median(of))
		}
		t.Times = append(t.Times, row)
	}
	return t, nil
}

// sum returns the share of idle time in a step of all ranks, and the mean time of each action.
func (m *pipelineMeter) sum(s pipelineStep) (idle float64, times []float64, err error) {
	span := []float64{-s.begin.Seconds(), s.end.Seconds()}
	if err := collective.AllReduce(m.comm, span, collective.Max); err != nil {
		return 0, nil, err
	}
	sums := []float64{s.busy}
	for _, one := range s.times {
		sums = append(sums, one[:]...)
	}
	if err := collective.AllReduce(m.comm, sums, collective.Sum); err != nil {
		return 0, nil, err
	}
	for one := range slices.Chunk(sums[1:], 2) {
		times = append(times, one[0]/max(one[1], 1))
	}
	return 1 - sums[0]/((span[0]+span[1])*float64(m.comm.Size())), times, nil
}
