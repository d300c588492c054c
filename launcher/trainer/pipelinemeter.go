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
	Idle float64 // the median of the steps
	// what the schedule predicts from the times of the actions of the same step: from the mean of a
	// stage's actions of one kind, and from that of each action
	Predicted, Exact float64
	Kinds            []string    // of actions
	Times            [][]float64 // [stage][kind]: seconds of an action, the median of the steps; 0: none
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
	times      [][2]float64 // of each action, see index: seconds, and 1 if the rank has it
}

const actionKinds = int(pipeline.ReduceGrad)

// begin begins a step.
func (m *pipelineMeter) begin() {
	m.steps = append(m.steps, pipelineStep{begin: time.Since(m.since), times: make([][2]float64, m.schedule.Stages*actionKinds*m.schedule.Microbatches)})
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
	s.times[m.index(a)] = [2]float64{work, 1}
}

// index returns the place of an action among those of its kind and stage.
func (m *pipelineMeter) index(a pipeline.Action) int {
	return (a.Stage*actionKinds+int(a.Kind))*m.schedule.Microbatches + a.Microbatch
}

// forget forgets the steps so far.
func (m *pipelineMeter) forget() { m.steps = m.steps[:0] }

// gather compares the steps of all ranks with the schedule. It is collective.
func (m *pipelineMeter) gather() (t PipelineTimes, err error) {
	t.Title = m.schedule.Title()
	for k := range actionKinds {
		t.Kinds = append(t.Kinds, pipeline.Kind(k).String())
	}
	var idle, predicted, exact []float64
	all := make([][]float64, m.schedule.Stages*actionKinds) // of steps
	for _, s := range m.steps {
		measured, times, err := m.sum(s)
		if err != nil {
			return t, fmt.Errorf("gathering the times of a pipeline: %w", err)
		}
		own, err := m.bubble(func(a pipeline.Action) float64 { return times[m.index(a)] })
		if err != nil {
			return t, err
		}
		means := m.means(times)
		mean, err := m.bubble(func(a pipeline.Action) float64 { return means[a.Stage*actionKinds+int(a.Kind)] })
		if err != nil {
			return t, err
		}
		idle, predicted, exact = append(idle, measured), append(predicted, mean), append(exact, own)
		for i, v := range means {
			all[i] = append(all[i], v)
		}
	}
	t.Idle, t.Predicted, t.Exact = median(idle), median(predicted), median(exact)
	for stage := range slices.Chunk(all, actionKinds) {
		var row []float64
		for _, of := range stage {
			row = append(row, median(of))
		}
		t.Times = append(t.Times, row)
	}
	return t, nil
}

// bubble returns the idle time of the schedule if its actions take the given times.
func (m *pipelineMeter) bubble(time func(pipeline.Action) float64) (float64, error) {
	line, err := m.schedule.SimulateTimes(func(slot pipeline.Slot) (sum float64) {
		for _, a := range slot {
			if a.Kind != pipeline.ReduceGrad {
				sum += time(a)
			}
		}
		return sum
	})
	if err != nil {
		return 0, err
	}
	return line.Bubble(), nil
}

// means returns the mean time of each stage's actions of a kind.
func (m *pipelineMeter) means(times []float64) (means []float64) {
	for of := range slices.Chunk(times, m.schedule.Microbatches) {
		sum, n := 0.0, 0
		for _, t := range of {
			if t > 0 {
				sum, n = sum+t, n+1
			}
		}
		means = append(means, sum/float64(max(n, 1)))
	}
	return means
}

// sum returns the share of idle time in a step of all ranks, and the time of each action: the mean
// of the ranks that have it, 0 if none does.
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
