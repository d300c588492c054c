package observe

// The rows of a trace for the stages of a pipeline: the actions of the schedule, without the time
// in which a rank waits for their messages. Perfetto colors slices by their names without numbers,
// so all F have one color.

import (
	"cmp"
	"fmt"
	"slices"

	"spmoe/collective/pipeline"
	"spmoe/launcher/trace"
	"spmoe/tensor/profile"
)

// action begins the slice of an action. end ends it.
func (t *Tracer) action(a pipeline.Action, paired bool) (end func()) {
	from, work := t.Now(), profile.Work{Layer: a.Stage, M: a.Microbatch, N: int(a.Kind)}
	if paired {
		work.K = 1
	}
	return func() { t.addWork(traceAction, work, from, t.Now()) }
}

// observeActions traces the actions of the pipeline, if there is one, or ends that.
func (t *Tracer) observeActions(on bool) {
	switch {
	case t.pipe == nil:
	case on:
		t.pipe.Observe = t.action
	default:
		t.pipe.Observe = nil
	}
}

// stageRows holds the rows of stages. Ranks with the same stages have one row each.
type stageRows map[[2]int]*trace.Row // by stage and rank

// add adds an action of a rank, by the clock of all ranks.
func (rows stageRows) add(rank int, zero int64, s tracedSlice) {
	stage, kind := s.work.Layer, pipeline.Kind(s.work.N)
	at := [2]int{stage, rank}
	if rows[at] == nil {
		rows[at] = &trace.Row{Name: fmt.Sprintf("stage %d, rank %d", stage, rank)}
	}
	name := fmt.Sprintf("%v %d", kind, s.work.M)
	if s.work.K > 0 {
		name += " in a pair"
	}
	rows[at].Slices = append(rows[at].Slices, trace.Slice{
		Name: name, Category: "pipeline", From: zero + s.from, To: zero + s.to, Args: map[string]any{"stage": stage, "micro-batch": s.work.M},
	})
}

// list returns the rows in the order of the stages.
func (rows stageRows) list() (all []trace.Row) {
	var keys [][2]int
	for at := range rows {
		keys = append(keys, at)
	}
	slices.SortFunc(keys, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, at := range keys {
		all = append(all, *rows[at])
	}
	return all
}
