package trainer

// Tasks at the evaluations of a run.

import (
	"fmt"

	"spmoe/launcher/record"
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
	s := tasks.Scorer{Comm: e.comm, Readers: e.readers, Models: e.state.models(), Batch: e.state.data.micro()}
	s.Eval = func(b moe.Batch) error {
		_, err := e.state.eval(e.ex, b)
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

// recordedTasks returns results as a record has them.
func recordedTasks(results []tasks.Result) (all []record.Task) {
	for _, r := range results {
		t := record.Task{Task: r.Task, Form: r.Form, Items: r.Items, Metrics: map[string]record.Number{}}
		for _, m := range r.Metrics {
			t.Metrics[m.Name] = record.Number(m.Value)
		}
		all = append(all, t)
	}
	return all
}
