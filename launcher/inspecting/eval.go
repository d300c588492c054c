package inspecting

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/evaluation"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/moe"
	"spmoe/tensor"
)

// evalFlags are the flags of eval.
type evalFlags struct {
	model     running.ModelFlags
	data      []string
	field     string
	seq       int
	batch     int
	maxTokens int
	tasks     []string
	json      bool
}

// DefineEval defines the flags of eval.
func DefineEval(fs *flag.FlagSet) cli.Action {
	f := &evalFlags{}
	f.model.Define(fs)
	fs.Func("data", "`PATH` text whose validation part to predict, as in train --data; default: that of the run", func(path string) error {
		f.data = append(f.data, path)
		return nil
	})
	fs.StringVar(&f.field, "data-field", "", "`NAME` field or column with the text in JSON, CSV, Parquet and Arrow files; empty: the run's")
	fs.IntVar(&f.seq, "seq", 0, "`N` tokens per window; 0: the run's --seq, or 512")
	fs.IntVar(&f.batch, "batch", 8, "`N` windows per rank and pass; affects speed and memory only")
	fs.IntVar(&f.maxTokens, "max-tokens", 0, "`N` maximum number of tokens to predict, in whole windows; 0: as in the run's evaluations; -1: all")
	fs.Func("tasks", "`FILE[,FILE]` answer the questions in JSONL files in the form of LAMBADA, HellaSwag or ARC, instead of predicting text", func(files string) error {
		f.tasks = append(f.tasks, files)
		return nil
	})
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return f.run
}

func (f *evalFlags) run(ctx context.Context, env cli.Env) error {
	if len(env.Args) > 0 && len(f.data) == 0 {
		return fmt.Errorf("unexpected argument %q: only --data takes several values", env.Args)
	}
	f.data = append(f.data, env.Args...)
	if len(f.tasks) > 0 {
		return f.runTasks(ctx, env)
	}
	e, err := f.evaluate(ctx, env.ErrOut)
	if err != nil {
		return err
	}
	e.print(env.Out, f.json)
	if cli.Finite(e.result.Loss) == nil {
		return cli.Fail(fmt.Errorf("the loss is %g: the weights are damaged, or training has diverged", e.result.Loss), cli.ExitFailed)
	}
	return nil
}

// evaluated is a measurement and what was measured.
type evaluated struct {
	model   *running.TrainedModel // its files are closed
	options evaluation.Options
	result  evaluation.Result
	builtin string // describes the built-in text, if that was evaluated
}

// evaluate measures the model, and prints to warn what was assumed of it.
func (f *evalFlags) evaluate(ctx context.Context, warn io.Writer) (e evaluated, err error) {
	m, err := f.model.Open(warn)
	if err != nil {
		return e, err
	}
	defer m.Close()
	o, err := f.options(m)
	if err != nil {
		return e, err
	}
	data, err := f.load(m)
	if err != nil {
		return e, err
	}
	defer data.Close()
	text := data.HeldOut
	if _, err := datasets.NewWindows(text, datasets.WindowsConfig{Seq: o.Seq, Count: o.Windows, Ranks: 1}); err != nil {
		return e, err
	}
	e = evaluated{model: m, options: o, builtin: data.Builtin}
	err = m.Run(o.Seq, func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error {
		r, err := evaluation.Run(ctx, ex, c, model, text, m.Tokenizer, o)
		if c.Rank() == 0 {
			e.result = r
		}
		return err
	})
	if errors.Is(err, evaluation.ErrInterrupted) {
		return e, cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return e, cli.Fail(err, cli.ExitFailed)
	}
	return e, nil
}

// defaultSeq is the window length for a model whose training length is unknown.
const defaultSeq = 512

// options returns the options of the evaluation of a model.
func (f *evalFlags) options(m *running.TrainedModel) (o evaluation.Options, err error) {
	if o.Seq = f.seq; o.Seq == 0 {
		if o.Seq = min(defaultSeq, m.Cfg.Model.MaxPositions); m.IsRun {
			o.Seq = m.Cfg.Seq
		}
		if f.maxTokens > 0 {
			o.Seq = min(o.Seq, f.maxTokens) // one short window
		}
	}
	if err := f.check(o.Seq, m); err != nil {
		return o, err
	}
	switch {
	case f.maxTokens < -1 || f.maxTokens > 0 && f.maxTokens < o.Seq:
		return o, fmt.Errorf("--max-tokens is %d: give at least a window of %d (--seq), or -1 for all", f.maxTokens, o.Seq)
	}
	if m.Cfg.DocumentMask {
		end, err := datasets.Separator(m.Tokenizer)
		if err != nil {
			return o, err
		}
		o.Separator = &end
	}
	const all = 1 << 30
	switch o.Batch = f.batch; f.maxTokens {
	case 0:
		o.Windows = m.Cfg.EvalSequences
	case -1:
		o.Windows = all
	default:
		o.Windows = f.maxTokens / o.Seq
	}
	return o, nil
}

// check returns an error if windows of seq tokens, or the number of them per pass, are impossible.
func (f *evalFlags) check(seq int, m *running.TrainedModel) error {
	if seq < 1 || seq > m.Cfg.Model.MaxPositions {
		return fmt.Errorf("--seq is %d: give 1 to %d (model.max_positions)", f.seq, m.Cfg.Model.MaxPositions)
	}
	if f.batch < 1 {
		return fmt.Errorf("--batch is %d: give 1 or more windows", f.batch)
	}
	return nil
}

// load reads the text whose validation part is predicted.
func (f *evalFlags) load(m *running.TrainedModel) (*datasets.Data, error) {
	paths := f.data
	if len(paths) == 0 {
		paths = m.Cfg.Data
	}
	return datasets.Load(paths, m.Tokenizer, datasets.Options{Field: cmp.Or(f.field, m.Cfg.DataField), Rules: datasets.Rules(m.Cfg.DataRules)})
}

// print prints the result, for people or as JSON.
func (e evaluated) print(out io.Writer, asJSON bool) {
	m, o, r, builtin := e.model, e.options, e.result, e.builtin
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		values := map[string]any{
			"checkpoint": m.Source.Path(), "precision": m.Cfg.Precision, "tokenizer": m.Tokenizer.Name(), "np": m.Ranks, "seq": o.Seq,
			"loss": cli.Finite(r.Loss), "standard_error": cli.Finite(r.StdErr), "perplexity": cli.Finite(r.Perplexity()), "bits_per_byte": cli.Finite(r.BitsPerByte()),
			"windows": r.Windows, "tokens": r.Tokens, "bytes": r.Bytes, "elapsed_s": r.Time.Seconds(), "tps": r.TokensPerSecond(),
		}
		if builtin != "" {
			values["text"] = builtin
		}
		encoder.Encode(values)
		return
	}
	fmt.Fprintf(out, "%s, %s, %s\n", m.Source.Path(), m.Cfg.Precision, report.Plural(m.Ranks, "rank"))
	if builtin != "" {
		fmt.Fprintf(out, "text: %s\n", builtin)
	}
	fmt.Fprintf(out, "validation loss: %.4f nats/token, standard error %.4f over %s of %d tokens\n", r.Loss, r.StdErr, report.Plural(r.Windows, "window"), o.Seq)
	fmt.Fprintf(out, "perplexity: %s; %.4f bits/byte of %s bytes\n", cli.FourDigits(r.Perplexity()), r.BitsPerByte(), report.Thousands(float64(r.Bytes)))
	fmt.Fprintf(out, "%s tokens, %s tokens/s\n", report.Thousands(float64(r.Tokens)), report.Thousands(r.TokensPerSecond()))
}
