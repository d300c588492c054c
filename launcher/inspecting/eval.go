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
	fs.StringVar(&f.field, "data-field", "", "`NAME` field or column with the text in JSON Lines and Parquet files; empty: the run's")
	fs.IntVar(&f.seq, "seq", 0, "`N` tokens per window; 0: the run's --seq, or 512")
	fs.IntVar(&f.batch, "batch", 8, "`N` windows per rank and pass; affects speed and memory only")
	fs.IntVar(&f.maxTokens, "max-tokens", 0, "`N` maximum number of tokens to predict, in whole windows; 0: as in the run's evaluations; -1: all")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return f.run
}

// run measures the model's loss on the validation part of a text, and prints it.
func (f *evalFlags) run(ctx context.Context, env cli.Env) error {
	if len(env.Args) > 0 && len(f.data) == 0 {
		return fmt.Errorf("unexpected argument %q: only --data takes several values", env.Args)
	}
	f.data = append(f.data, env.Args...)
	m, err := f.model.Open(env.ErrOut)
	if err != nil {
		return err
	}
	defer m.Close()
	o, err := f.options(m)
	if err != nil {
		return err
	}
	paths := f.data
	if len(paths) == 0 {
		paths = m.Cfg.Data
	}
	data, err := datasets.Load(paths, m.Tokenizer, datasets.Options{Field: cmp.Or(f.field, m.Cfg.DataField), Rules: datasets.Rules(m.Cfg.DataRules)})
	if err != nil {
		return err
	}
	defer data.Close()
	if _, err := datasets.NewWindows(data.HeldOut, datasets.WindowsConfig{Seq: o.Seq, Count: o.Windows, Ranks: 1}); err != nil {
		return err
	}
	var result evaluation.Result
	err = m.Run(o.Seq, func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error {
		r, err := evaluation.Run(ctx, ex, c, model, data.HeldOut, m.Tokenizer, o)
		if c.Rank() == 0 {
			result = r
		}
		return err
	})
	if errors.Is(err, evaluation.ErrInterrupted) {
		return cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	f.print(env.Out, m, o, result, data.Builtin)
	if cli.Finite(result.Loss) == nil {
		return cli.Fail(fmt.Errorf("the loss is %g: the weights are damaged, or training has diverged", result.Loss), cli.ExitFailed)
	}
	return nil
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
	switch {
	case o.Seq < 1 || o.Seq > m.Cfg.Model.MaxPositions:
		return o, fmt.Errorf("--seq is %d: give 1 to %d (model.max_positions)", o.Seq, m.Cfg.Model.MaxPositions)
	case f.batch < 1:
		return o, fmt.Errorf("--batch is %d: give 1 or more windows", f.batch)
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

// print prints the result, for people or as JSON. builtin describes the built-in text, if that was
// evaluated.
func (f *evalFlags) print(out io.Writer, m *running.TrainedModel, o evaluation.Options, r evaluation.Result, builtin string) {
	if f.json {
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
	fmt.Fprintf(out, "perplexity: %.4g; %.4f bits/byte of %s bytes\n", r.Perplexity(), r.BitsPerByte(), report.Thousands(float64(r.Bytes)))
	fmt.Fprintf(out, "%s tokens, %s tokens/s\n", report.Thousands(float64(r.Tokens)), report.Thousands(r.TokensPerSecond()))
}
