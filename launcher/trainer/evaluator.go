package trainer

// Evaluation on the validation text, whose windows are spread over the ranks.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/tensor"
)

// evaluator measures the validation loss between steps.
type evaluator struct {
	job      *Job
	comm     *collective.Comm
	ex       *tensor.Exec
	state    *trainState
	recorder *recorder
	tracer   *tracer
	windows  *datasets.Windows // of all ranks

	step          int     // of the newest evaluation
	loss          float64 // of that evaluation, nats per token
	bytesPerToken float64 // of the validation text
}

// due reports whether an evaluation is due after the last step. The final step of a run always has
// one.
func (e *evaluator) due() bool {
	step, cfg := e.state.progress.Step, &e.job.cfg
	return due(cfg.evalInterval(), step) && step < cfg.Steps
}

// evaluate returns the mean loss over the validation windows, in nats per token, and reports it. It
// is collective.
func (e *evaluator) evaluate() (float64, error) {
	defer e.tracer.during(traceEvaluation)()
	sum, err := e.passes()
	if err != nil {
		return 0, err
	}
	global, err := sum.sum(e.ex, e.comm)
	if err != nil {
		return 0, err
	}
	loss, _ := global.means()
	e.bytesPerToken = global.bytes / max(global.tokens, 1)
	eval := Eval{e.state.progress.Step, loss, bitsPerByte(loss, e.bytesPerToken), e.windows.Total()}
	if e.comm.Rank() == 0 {
		e.job.report.Eval(eval)
	}
	if err := e.recorder.evaluation(eval); err != nil {
		return 0, fmt.Errorf("recording the evaluation: %w", err)
	}
	return loss, nil
}

// passes runs this rank's windows through the model. A pass covers the next windows of all ranks,
// at most as many as sequences in training. So which windows share a pass does not depend on the
// layout.
func (e *evaluator) passes() (sum totals, err error) {
	data, rank, ranks, total := e.state.data, e.comm.Rank(), e.comm.Size(), e.windows.Total()
	micro, row := data.micro(), data.seq+1
	rows := make([]int32, micro*row)
	for first := 0; first < total; first += micro * ranks {
		n := min(micro*ranks, total-first)
		lo, hi := first+n*rank/ranks, first+n*(rank+1)/ranks
		for i := lo; i < hi; i++ {
			e.windows.Read(rows[(i-lo)*row:][:row], i)
		}
		fault.Point(fault.InEvaluation)
		batch := data.split(rows[:(hi-lo)*row], total)
		loss, err := e.state.model.Eval(e.ex, batch)
		if err != nil {
			return sum, fmt.Errorf("evaluation: %w", err)
		}
		sum.add(loss)
		sum.bytes += float64(e.job.bytesOf(batch.Targets))
	}
	return sum, nil
}
