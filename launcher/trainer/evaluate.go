package trainer

import (
	"fmt"

	"spmoe/internal/fault"
)

// Evaluation on held-out text, whose windows are spread over the ranks.

// evaluates reports whether an evaluation is due after the step that was made last. The last of a run is in any case.
func (r *rank) evaluates() bool {
	return every(r.cfg.EvalEvery, r.progress.Step) && r.progress.Step < r.cfg.Steps
}

// evaluate returns the mean loss over the held-out windows, in nats a token, and reports it.
func (r *rank) evaluate() (float64, error) {
	defer r.tracer.during(traceEvaluation)()
	var sum totals
	micro := len(r.inputs) / r.cfg.Seq
	rows := make([]int32, micro*(r.cfg.Seq+1))
	// Ranks may hold different numbers of windows; a pass is collective, so all make as many.
	most := (r.heldOut.Total() + r.comm.Size() - 1) / r.comm.Size()
	for lo := 0; lo < most; lo += micro {
		hi := min(lo+micro, r.heldOut.Len())
		n := max(hi-lo, 0)
		for i := range n {
			r.heldOut.Read(rows[i*(r.cfg.Seq+1):(i+1)*(r.cfg.Seq+1)], lo+i)
		}
		fault.Point(fault.InEvaluation)
		batch := r.batch(rows[:n*(r.cfg.Seq+1)], r.heldOut.Total())
		loss, err := r.model.Eval(r.ex, batch)
		if err != nil {
			return 0, fmt.Errorf("evaluation: %w", err)
		}
		sum.add(loss)
		sum.bytes += float64(r.job.bytesOf(batch.Targets))
	}
	global, err := r.sumTotals(sum)
	if err != nil {
		return 0, err
	}
	loss, _ := global.means()
	r.bytesPerToken = global.bytes / max(global.tokens, 1)
	eval := Eval{r.progress.Step, loss, bitsPerByte(loss, r.bytesPerToken), r.heldOut.Total()}
	if r.lead() {
		r.job.report.Eval(eval)
	}
	if err := r.recordEval(eval); err != nil {
		return 0, fmt.Errorf("recording the evaluation: %w", err)
	}
	return loss, nil
}
