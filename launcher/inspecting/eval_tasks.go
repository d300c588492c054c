package inspecting

// eval --tasks: questions with known answers.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/evaluation"
	"spmoe/launcher/generate"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/tasks"
	"spmoe/moe"
	"spmoe/tensor"
)

func (f *evalFlags) runTasks(ctx context.Context, env cli.Env) error {
	if len(f.data) > 0 || f.field != "" || f.maxTokens != 0 {
		return errors.New("--tasks answers the questions in its files: leave out --data, --data-field and --max-tokens")
	}
	m, err := f.model.Open(env.ErrOut)
	if err != nil {
		return err
	}
	defer m.Close()
	loaded, err := f.loadTasks(m)
	if err != nil {
		return err
	}
	var results []tasks.Result
	err = m.Run(tasks.Longest(loaded), func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error {
		s := tasks.Scorer{Comm: c, Readers: c, Models: []*moe.Model{model}, Batch: f.batch, Stop: func() error { return evaluation.Interrupted(ctx, c) }}
		s.Eval = func(b moe.Batch) error {
			_, err := model.Eval(ex, b)
			return err
		}
		for i := range loaded {
			r, err := loaded[i].Run(&s)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				results = append(results, r)
			}
		}
		return nil
	})
	if errors.Is(err, evaluation.ErrInterrupted) {
		return cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	for _, r := range results {
		if r.NotFinite > 0 {
			return cli.Fail(fmt.Errorf("task %s: %s not finite: the weights are damaged, or training has diverged", r.Task, report.Plural(r.NotFinite, "score")), cli.ExitFailed)
		}
	}
	return f.printTasks(env.Out, m, results)
}

// loadTasks reads the questions. By default a text is cut where the run's windows end, or where the
// positions of a Hugging Face model do.
func (f *evalFlags) loadTasks(m *running.TrainedModel) ([]tasks.Loaded, error) {
	e := tasks.Encoder{Tokenizer: m.Tokenizer, Context: f.seq}
	if f.seq == 0 {
		if e.Context = m.Cfg.Model.MaxPositions; m.IsRun {
			e.Context = m.Cfg.Seq
		}
	}
	if err := f.check(e.Context, m); err != nil {
		return nil, err
	}
	all, err := tasks.Read(f.tasks)
	if err != nil {
		return nil, err
	}
	if !m.IsRun {
		_ = datasets.TakeSpecial(m.Tokenizer) // if it has any
		if e.Begin, err = generate.Beginning(m.Source.Path()); err != nil {
			return nil, err
		}
	}
	return tasks.Load(all, &e)
}

func (f *evalFlags) printTasks(out io.Writer, m *running.TrainedModel, results []tasks.Result) error {
	if f.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{
			"checkpoint": m.Source.Path(), "precision": m.Cfg.Precision, "tokenizer": m.Tokenizer.Name(), "np": m.Ranks, "tasks": results,
		})
	}
	fmt.Fprintf(out, "%s, %s, %s\n", m.Source.Path(), m.Cfg.Precision, report.Plural(m.Ranks, "rank"))
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "task\tform\titems\tmetric\tvalue\n")
	for _, r := range results {
		for _, metric := range r.Metrics {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", r.Task, r.Form, r.Items, metric.Name, report.Metric(metric))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.Truncated > 0 {
			fmt.Fprintf(out, "note: %s of %s lost the beginning of their context, which is longer than the model's: --seq sets its length\n", report.Plural(r.Truncated, "continuation"), r.Task)
		}
	}
	return nil
}
