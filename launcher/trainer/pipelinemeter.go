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
	actions  [2]running // in progress: of a slot
	now      int        // the one that runs
}

// running is an action in progress.
type running struct {
	begin  time.Time     // of its current turn
	waited time.Duration // for messages, before that
	worked float64       // seconds, before that
	sent   float64       // seconds that it had worked when it sent its result; 0: it has not
}

// pipelineStep is what a rank has measured in a step.
type pipelineStep struct {
	begin, end time.Duration
	busy       float64      // seconds
	times      [][3]float64 // of each action, see index: seconds, those until it had sent, and 1 if the rank has it
}

const actionKinds = int(pipeline.ReduceGrad)

// begin begins a step.
func (m *pipelineMeter) begin() {
	m.now = 0
	m.steps = append(m.steps, pipelineStep{begin: time.Since(m.since), times: make([][3]float64, m.schedule.Stages*actionKinds*m.schedule.Microbatches)})
}

// observe measures an action, whose messages have come. It may wait until it can send.
func (m *pipelineMeter) observe(a pipeline.Action, _ bool) (end func()) {
	m.actions[m.now] = running{begin: time.Now(), waited: m.waits()}
	return func() {
		took := pipeline.Took{Sent: m.actions[m.now].sent, All: m.worked()}
		if took.Sent == 0 {
			took.Sent = took.All
		}
		m.count(a, took, time.Since(m.since))
	}
}

// sent notes that the current action has sent its result.
func (m *pipelineMeter) sent(pipeline.Action) { m.actions[m.now].sent = m.worked() }

// turned notes that the other action of an overlapped pair goes on.
func (m *pipelineMeter) turned(now int) {
	m.actions[m.now].worked = m.worked()
	m.now = now
	next := &m.actions[now]
	next.begin, next.waited = time.Now(), m.waits()
}

// worked returns the seconds that the current action has worked.
func (m *pipelineMeter) worked() float64 {
	a := &m.actions[m.now]
	return a.worked + (time.Since(a.begin) - m.waits() + a.waited).Seconds()
}

// waits returns how long the rank has waited for messages.
func (m *pipelineMeter) waits() time.Duration { return m.line.Stats()[collective.KindMessage].Wait }

// count counts an action that ends at end.
func (m *pipelineMeter) count(a pipeline.Action, took pipeline.Took, end time.Duration) {
	if a.Kind == pipeline.ReduceGrad {
		return
	}
	s := &m.steps[len(m.steps)-1]
	s.end, s.busy = end, s.busy+took.All
	s.times[m.index(a)] = [3]float64{took.All, took.Sent, 1}
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
		own, err := m.bubble(func(a pipeline.Action) pipeline.Took { return times[m.index(a)] })
		if err != nil {
			return t, err
		}
		means := m.means(times)
		mean, err := m.bubble(func(a pipeline.Action) pipeline.Took { return means[a.Stage*actionKinds+int(a.Kind)] })
		if err != nil {
			return t, err
		}
		idle, predicted, exact = append(idle, measured), append(predicted, mean), append(exact, own)
		for i, v := range means {
			all[i] = append(all[i], v.All)
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
func (m *pipelineMeter) bubble(took func(pipeline.Action) pipeline.Took) (float64, error) {
	line, err := m.schedule.SimulateTimes(func(a pipeline.Action) pipeline.Took {
		if a.Kind == pipeline.ReduceGrad {
			return pipeline.Took{}
		}
		return took(a)
	})
	if err != nil {
		return 0, err
	}
	return line.Bubble(), nil
}

// means returns the mean time of each stage's actions of a kind.
func (m *pipelineMeter) means(times []pipeline.Took) (means []pipeline.Took) {
	for of := range slices.Chunk(times, m.schedule.Microbatches) {
		var sum pipeline.Took
		n := 0.0
		for _, t := range of {
			if t.All > 0 {
				sum, n = pipeline.Took{Sent: sum.Sent + t.Sent, All: sum.All + t.All}, n+1
			}
		}
		means = append(means, pipeline.Took{Sent: sum.Sent / max(n, 1), All: sum.All / max(n, 1)})
	}
	return means
}

// sum returns the share of idle time in a step of all ranks, and the time of each action: the mean
// of the ranks that have it, 0 if none does.
func (m *pipelineMeter) sum(s pipelineStep) (idle float64, times []pipeline.Took, err error) {
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
	for one := range slices.Chunk(sums[1:], 3) {
		ranks := max(one[2], 1)
		times = append(times, pipeline.Took{Sent: one[1] / ranks, All: one[0] / ranks})
	}
	return 1 - sums[0]/((span[0]+span[1])*float64(m.comm.Size())), times, nil
}
