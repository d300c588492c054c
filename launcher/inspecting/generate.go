package inspecting

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/generate"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/tensor"
)

// generateFlags are the flags of generate.
type generateFlags struct {
	model      running.ModelFlags
	prompts    []string
	promptFile string
	options    generate.Options
	json       bool
	logProbs   string
}

// DefineGenerate defines the flags of generate.
func DefineGenerate(fs *flag.FlagSet) cli.Action {
	f := &generateFlags{}
	f.model.Define(fs)
	fs.Func("prompt", "`TEXT` continue TEXT (repeatable: prompts form a batch)", func(text string) error {
		f.prompts = append(f.prompts, text)
		return nil
	})
	fs.StringVar(&f.promptFile, "prompt-file", "", "`FILE` read more prompts from FILE, one per line")
	fs.IntVar(&f.options.MaxTokens, "max-tokens", 100, "`N` maximum new tokens per text")
	fs.Float64Var(&f.options.Temperature, "temperature", 0.7, "`X` divide the scores by X before sampling; 0: always take the best token")
	fs.IntVar(&f.options.TopK, "top-k", 0, "`N` sample from the N best tokens; 0: from all")
	fs.Float64Var(&f.options.TopP, "top-p", 1, "`X` sample from the best tokens whose probabilities sum to X; 1: from all")
	fs.Uint64Var(&f.options.Seed, "seed", 1, "`N` seed; a text depends on it and on its prompt's number, not on the other prompts")
	fs.Func("stop", "`TEXT` stop at TEXT (repeatable)", func(text string) error {
		f.options.Stop = append(f.options.Stop, text)
		return nil
	})
	fs.BoolVar(&f.options.Endless, "endless", false, "continue when the model ends the document")
	fs.IntVar(&f.options.Context, "context", 0, "`N` context length in tokens; 0: the run's --seq, or that of a Hugging Face model's config.json")
	fs.BoolVar(&f.options.Slide, "slide", false, "when the context is full, continue with its second half")
	fs.StringVar(&f.logProbs, "logprobs", "", "`FILE` write a JSON line per token: id, log-probability, experts")
	fs.BoolVar(&f.json, "json", false, "print JSON lines: one per text, and one with times")
	return f.run
}

func (f *generateFlags) run(ctx context.Context, env cli.Env) error {
	if len(env.Args) > 0 {
		return fmt.Errorf("unexpected argument %q: give texts with --prompt, in quotes", strings.Join(env.Args, " "))
	}
	prompts, err := f.readPrompts()
	if err != nil {
		return err
	}
	m, err := f.model.Open(env.ErrOut)
	if err != nil {
		return err
	}
	defer m.Close()
	o := f.options
	if o.Context == 0 {
		if o.Context = m.Cfg.Model.MaxPositions; m.IsRun {
			o.Context = m.Cfg.Seq
		}
	}
	asked, err := m.Prompts(prompts, env.ErrOut)
	if err != nil {
		return err
	}
	if err := generate.Check(m.Cfg.Model, m.Tokenizer, asked, o); err != nil {
		return err
	}
	if err := m.CheckExact(); err != nil {
		fmt.Fprintf(env.ErrOut, "note: texts are not those of training to the last bit: %v\n", err)
	}
	o.LogProbs = f.logProbs != ""
	single, terminated := !f.json && len(prompts) == 1, false
	print := func(_ int, text string) {
		io.WriteString(env.Out, report.Printable(text)) // the model may generate any byte
		terminated = strings.HasSuffix(text, "\n")
	}
	if single {
		print(0, prompts[0])
	} else {
		print = nil
	}
	var texts []generate.Text
	var timing generate.Timing
	err = m.Run(1, func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error {
		g := generate.Generator{Ex: ex, Comm: c, Peers: c, Model: model, Tokenizer: m.Tokenizer, Piece: print}
		all, t, err := g.Run(ctx, asked, o)
		if c.Rank() == 0 {
			texts, timing = all, t
		}
		return err
	})
	if single && !terminated {
		fmt.Fprintln(env.Out)
	}
	if err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	if f.json {
		printEvents(env.Out, prompts, texts, timing)
	} else {
		if len(prompts) > 1 {
			for _, t := range texts {
				fmt.Fprintf(env.Out, "== %d: %.60q\n%s\n", t.Index+1, prompts[t.Index], report.Printable(prompts[t.Index]+t.Text))
			}
		}
		printTimes(env.ErrOut, timing)
	}
	if err := f.outcome(env.ErrOut, texts, o, m.Cfg.Model); err != nil {
		return err
	}
	if f.logProbs != "" {
		if err := writeLogProbs(f.logProbs, texts, m.Cfg.Model.TopK); err != nil {
			return cli.Fail(fmt.Errorf("--logprobs: %w", err), cli.ExitFailed)
		}
	}
	return nil
}

// mostPrompts bounds the size of a file of prompts, in bytes.
const mostPrompts = 64 << 20

func (f *generateFlags) readPrompts() ([]string, error) {
	prompts := f.prompts
	if f.promptFile != "" {
		text, err := system.ReadFile(f.promptFile, mostPrompts)
		if err != nil {
			return nil, fmt.Errorf("--prompt-file: %w: give a text file with one prompt per line", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				prompts = append(prompts, line)
			}
		}
	}
	if len(prompts) == 0 {
		return nil, errors.New("generate needs --prompt TEXT, or --prompt-file FILE with one prompt per line")
	}
	return prompts, nil
}

// writeLogProbs writes a line per sampled token.
func writeLogProbs(path string, texts []generate.Text, topK int) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	for _, t := range texts {
		for i, s := range t.Sampled {
			err = errors.Join(err, encoder.Encode(struct {
				Index    int       `json:"index"`    // of the prompt
				Position int       `json:"position"` // of the token in the text, with its prompt
				Token    int32     `json:"token"`
				LogProb  float64   `json:"logprob"`
				Experts  [][]int32 `json:"experts"` // of the token before it: [layers][topK]
			}{t.Index, t.PromptTokens + i, s.ID, s.LogProb, slices.Collect(slices.Chunk(s.Experts, topK))}))
		}
	}
	return errors.Join(err, buffer.Flush())
}

// outcome reports why texts ended early, and returns an error if something went wrong.
func (f *generateFlags) outcome(errOut io.Writer, texts []generate.Text, o generate.Options, model moe.Config) error {
	count := map[generate.Reason]int{}
	for _, t := range texts {
		count[t.Reason]++
	}
	if n := count[generate.Full]; n > 0 {
		more := ""
		if o.Context < model.MaxPositions {
			more = fmt.Sprintf("give a longer --context, up to %d, which the model may not have been trained for, or ", model.MaxPositions)
		}
		fmt.Fprintf(errOut, "note: the context of %d tokens was full before the end of %s: %sadd --slide to continue with its second half\n",
			o.Context, report.Plural(n, "text"), more)
	}
	if n := count[generate.NotFinite]; n > 0 {
		return cli.Fail(fmt.Errorf("the model's scores are not finite for %s: its weights are damaged, or training has diverged", report.Plural(n, "text")), cli.ExitFailed)
	}
	if count[generate.Interrupted] > 0 {
		return cli.Fail(context.Canceled, cli.ExitInterrupted)
	}
	return nil
}

// printEvents prints JSON lines: one per text, and one with times. Bytes that are not valid UTF-8
// become U+FFFD in the text; the tokens are exact.
func printEvents(out io.Writer, prompts []string, texts []generate.Text, t generate.Timing) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, t := range texts {
		encoder.Encode(map[string]any{
			"event": "text", "index": t.Index, "prompt": prompts[t.Index], "prompt_tokens": t.PromptTokens,
			"text": t.Text, "tokens": t.Tokens, "reason": t.Reason,
		})
	}
	encoder.Encode(map[string]any{
		"event": "done", "prefill_tokens": t.Prefill.Tokens, "prefill_s": t.Prefill.Time.Seconds(), "prefill_tps": t.Prefill.PerSecond(),
		"decode_tokens": t.Decode.Tokens, "decode_s": t.Decode.Time.Seconds(), "decode_tps": t.Decode.PerSecond(),
	})
}

// printTimes prints the speed of both parts.
func printTimes(errOut io.Writer, t generate.Timing) {
	speed := func(what string, r generate.Rate) string {
		return fmt.Sprintf("%s: %s, %s tokens/s", what, report.Plural(r.Tokens, "token"), report.Thousands(r.PerSecond()))
	}
	line := speed("prefill", t.Prefill)
	if t.Decode.Tokens > 0 { // the first token of a text comes from the prefill
		line += "; " + speed("decode", t.Decode)
	}
	fmt.Fprintln(errOut, line)
}
