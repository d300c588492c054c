package observe

// The record of evaluations.

import (
	"spmoe/launcher/record"
	"spmoe/launcher/tasks"
	"spmoe/launcher/trainer/events"
)

// RecordedTasks returns results as a record has them.
func RecordedTasks(results []tasks.Result) (all []record.Task) {
	for _, r := range results {
		t := record.Task{Task: r.Task, Form: r.Form, Items: r.Items, Metrics: map[string]record.Number{}}
		for _, m := range r.Metrics {
			t.Metrics[m.Name] = record.Number(m.Value)
		}
		all = append(all, t)
	}
	return all
}

// Evaluation adds an evaluation.
func (c *Recorder) Evaluation(e events.Eval) {
	if c.lead() {
		c.out.Eval(record.Eval{
			Step: e.Step, Loss: record.Number(e.Loss), Averaged: record.Number(e.Averaged), BitsPerByte: record.Number(e.BitsPerByte), Sequences: e.Sequences,
			Tasks: RecordedTasks(e.Tasks),
		})
	}
}
