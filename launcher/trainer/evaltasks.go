package trainer

// Tasks at the evaluations of a run.

import (
	"fmt"

	"spmoe/launcher/tasks"
	"spmoe/moe"
)

// readTasks reads the tasks of the run. Their texts are cut where training's sequences end.
func (j *Job) readTasks() error {
	all, err := tasks.Read(j.cfg.EvalTasks)
	if err != nil {
		return err
	}
	j.tasks, err = tasks.Load(all, &tasks.Encoder{Tokenizer: j.tokenizer, Context: j.cfg.Seq})
	return err
}

// runTasks returns the results of the tasks. A pass has at most the tokens of one in training. It
// is collective.
func (e *evaluator) runTasks() (results []tasks.Result, err error) {
	s := tasks.Scorer{Comm: e.comm, Readers: e.readers, Models: e.state.Models(), Batch: e.state.Data.Micro()}
	s.Eval = func(b moe.Batch) error {
		_, err := e.state.Eval(e.ex, b)
		return err
	}
	for i := range e.job.tasks {
		r, err := e.job.tasks[i].Run(&s)
		if err != nil {
			return nil, fmt.Errorf("evaluation: %w", err)
		}
		results = append(results, r)
	}
	return results, nil
}
