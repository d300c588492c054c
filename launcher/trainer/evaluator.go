package trainer

// Evaluation on the validation text, whose windows are spread over the ranks.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// evaluator measures the validation loss between steps.
type evaluator struct {
	job      *Job
	comm     *collective.Comm
	readers  *collective.Comm // the ranks that read different windows
	ex       *tensor.Exec
	state    *state.TrainState
	recorder *observe.Recorder
	tracer   *observe.Tracer
	windows  *datasets.Windows // of all ranks

	step     int     // of the newest evaluation
	loss     float64 // of that evaluation, nats per token
	measured measurement
	averaged float64 // loss of the averaged weights in that evaluation; 0: none
}

// measurement is the result of an evaluation of one set of weights.
type measurement struct {
	loss          float64   // nats per token
	passLosses    []float64 // of each pass, nats per token
	bytesPerToken float64   // of the validation text
}

// due reports whether an evaluation is due after the last step. The final step of a run always has
// one.
func (e *evaluator) due() bool {
	step, cfg := e.state.Progress.Step, &e.job.cfg
	return config.Due(cfg.EvalInterval(), step) && step < cfg.Steps
}

// evaluate returns the mean loss over the validation windows, in nats per token. It reports this
// loss and that of the averaged weights, if there are any. It is collective.
func (e *evaluator) evaluate() (float64, error) {
	defer e.tracer.During(observe.TraceEvaluation)()
	m, err := e.measure()
	if err != nil {
		return 0, err
	}
	averaged, err := e.measureAverage()
	if err != nil {
		return 0, err
	}
	e.measured, e.averaged = m, averaged
	eval := events.Eval{
		Step: e.state.Progress.Step, Loss: m.loss, Averaged: averaged,
		BitsPerByte: events.BitsPerByte(m.loss, m.bytesPerToken), Sequences: e.windows.Total(),
	}
	if eval.Tasks, err = e.runTasks(); err != nil {
		return 0, err
	}
	if e.comm.Rank() == 0 {
		e.job.report.Eval(eval)
	}
	if err := e.recorder.Evaluation(eval); err != nil {
		return 0, fmt.Errorf("recording the evaluation: %w", err)
	}
	return m.loss, nil
}

// measureAverage returns the loss of the averaged weights; 0 if there are none. The working weights
// are those of the last step again when it returns. It is collective.
func (e *evaluator) measureAverage() (float64, error) {
	if !e.state.Optim.Averages() {
		return 0, nil
	}
	if err := e.state.Optim.PublishAverage(); err != nil {
		return 0, fmt.Errorf("averaged weights: %w", err)
	}
	m, err := e.measure()
	if err != nil {
		return 0, fmt.Errorf("averaged weights: %w", err)
	}
	return m.loss, e.state.Optim.Publish()
}

// measure runs the validation windows through the model. It is collective.
func (e *evaluator) measure() (m measurement, err error) {
	passes, err := e.passes()
	if err != nil {
		return m, err
	}
	if err := e.sum(passes); err != nil {
		return m, err
	}
	var loss, tokens, bytes float64
	for _, pass := range passes {
		loss, tokens, bytes = loss+pass.loss, tokens+pass.tokens, bytes+pass.bytes
		m.passLosses = append(m.passLosses, pass.loss/max(pass.tokens, 1))
	}
	m.loss, m.bytesPerToken = loss/max(tokens, 1), bytes/max(tokens, 1)
	return m, nil
}

// passSum is the sum of a pass over windows: the loss in nats, and how much text it is of.
type passSum struct{ loss, tokens, bytes float64 }

// sum replaces the sums of this rank's passes by those of all ranks. It is collective.
func (e *evaluator) sum(passes []passSum) error {
	defer e.ex.Enter(e.ex.Enter(profile.Collectives))
	numbers := make([]float64, 0, 3*len(passes))
	for _, pass := range passes {
		numbers = append(numbers, pass.loss, pass.tokens, pass.bytes)
	}
	if err := collective.AllReduce(e.comm, numbers, collective.Sum); err != nil {
		return fmt.Errorf("summing the validation loss: %w", err)
	}
	for i := range passes {
		passes[i] = passSum{numbers[3*i], numbers[3*i+1], numbers[3*i+2]}
	}
	return nil
}

// passes runs this rank's windows through the model, and returns the sums of each pass. A pass
// covers the next windows of all ranks, at most as many as sequences in training. So which windows
// share a pass does not depend on the layout.
func (e *evaluator) passes() (sums []passSum, err error) {
	data, rank, ranks, total := e.state.Data, e.readers.Rank(), e.readers.Size(), e.windows.Total()
	micro, row := data.Micro(), data.Seq+1
	rows := make([]int32, micro*row)
	for first := 0; first < total; first += micro * ranks {
		n := min(micro*ranks, total-first)
		lo, hi := first+n*rank/ranks, first+n*(rank+1)/ranks
		for i := lo; i < hi; i++ {
			e.windows.Read(rows[(i-lo)*row:][:row], i)
		}
		fault.Point(fault.InEvaluation)
		batch := data.Split(rows[:(hi-lo)*row], total)
		loss, err := e.state.Eval(e.ex, batch)
		if err != nil {
			return nil, fmt.Errorf("evaluation: %w", err)
		}
		sum := passSum{loss: loss.Sum, tokens: float64(loss.Tokens)}
		if loss.Tokens > 0 { // not in a stage without the head
			sum.bytes = float64(e.job.bytesOf(batch.Targets))
		}
		sums = append(sums, sum)
	}
	return sums, nil
}
