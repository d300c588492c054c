package main

// The stages of run. Each one calls the code of the command that does the same by itself.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/runfile"
	"spmoe/launcher/stages"
	"spmoe/launcher/system"
)

// The names in the folder of a run.
const (
	tokensFile  = "tokens.arrow"
	trainFile   = "train.toml"
	modelFolder = "model" // the folder of the training run
	sampleFile  = "sample.txt"
	exported    = "exported"
	pageFile    = "report.html"
)

// results are the results of the stages.
type results struct {
	corpus    datasets.Identity
	tokenizer string // SHA-256 of its file
	tokens    string // SHA-256 of the file
	training  trainOutcome
	measured  measured
	sample    string
}

// trainOutcome is the result of the training stage.
type trainOutcome struct {
	Config     string  `json:"config"` // SHA-256
	Checkpoint string  `json:"checkpoint"`
	Tokens     int64   `json:"tokens"`
	Loss       float64 `json:"loss"`    // validation loss of its last evaluation, nats/token
	Seconds    float64 `json:"seconds"` // of all steps, also before the process was killed
}

// measured is the result of the evaluation.
type measured struct {
	Loss        float64 `json:"loss"` // nats/token
	StdErr      float64 `json:"standard_error"`
	BitsPerByte float64 `json:"bits_per_byte"`
	Tokens      int64   `json:"tokens"`
	Bytes       int64   `json:"bytes"`
}

// all runs the stages after the corpus.
func (r *fileRun) all(ctx context.Context) (err error) {
	setLastWords(ctx, func() {
		fmt.Fprintf(r.env.errOut, "\nlauncher: stopped at once; to continue: launcher %s\n", shellWords(r.env.commandLine))
	})
	steps := []func(context.Context) error{r.trainTokenizer, r.tokenize, r.trainModel, r.evaluate, r.generate, r.export, r.writePage}
	for _, step := range steps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// identify reads the corpus. It is read each time, because its text decides whether the stages have
// to run again.
func (r *fileRun) identify(ctx context.Context) (err error) {
	r.tell("corpus", "")
	printBuiltinText(r.env.out, r.file.Corpus.Data)
	r.done.corpus, err = datasets.Identify(ctx, r.file.Corpus.Data, datasets.Options{Field: r.file.Corpus.Field})
	if err == nil {
		id := r.done.corpus
		fmt.Fprintf(r.env.out, "%s in %s, SHA-256 %s\n", system.Bytes(id.Bytes), report.Plural(id.Documents, "document"), id.SHA256)
	}
	return err
}

// dataFlags returns the flags of the commands that read the corpus.
func (r *fileRun) dataFlags(out string) *dataFlags {
	return &dataFlags{data: r.file.Corpus.Data, field: r.file.Corpus.Field, out: r.in(out), vocab: r.file.Tokenizer.Vocab, tokenizer: r.in(datasets.TokenizerFile)}
}

func (r *fileRun) trainTokenizer(ctx context.Context) (err error) {
	r.done.tokenizer, err = stages.Do(ctx, r.job, stages.Stage[string]{
		Name: "tokenizer", Inputs: []any{r.done.corpus.SHA256, r.file.Tokenizer}, Files: []string{datasets.TokenizerFile},
		Run: func(ctx context.Context) (string, error) {
			if err := r.dataFlags(datasets.TokenizerFile).trainTokenizer(ctx, r.env); err != nil {
				return "", err
			}
			return hashFile(r.in(datasets.TokenizerFile))
		},
	})
	return err
}

func (r *fileRun) tokenize(ctx context.Context) (err error) {
	r.done.tokens, err = stages.Do(ctx, r.job, stages.Stage[string]{
		Name: "tokens", Inputs: []any{r.done.corpus.SHA256, r.done.tokenizer}, Files: []string{tokensFile},
		Run: func(ctx context.Context) (string, error) {
			if err := r.dataFlags(tokensFile).tokenize(ctx, r.env); err != nil {
				return "", err
			}
			return hashFile(r.in(tokensFile))
		},
	})
	return err
}

// trainModel trains the model. A run that was interrupted continues from its newest checkpoint.
func (r *fileRun) trainModel(ctx context.Context) (err error) {
	config := fmt.Sprintf("%x", sha256.Sum256(r.train))
	r.done.training, err = stages.Do(ctx, r.job, stages.Stage[trainOutcome]{
		Name: "train", Inputs: []any{r.done.tokens, config}, Files: []string{modelFolder}, Resumes: true,
		Run: func(ctx context.Context) (trainOutcome, error) {
			text := fmt.Appendf(nil, "out = %q\ndata = [%q]\n%s", r.in(modelFolder), r.in(tokensFile), r.train)
			if err := r.write(trainFile, text); err != nil {
				return trainOutcome{}, err
			}
			f := &trainFlags{}
			f.define(flag.NewFlagSet("train", flag.ContinueOnError))
			f.config, f.ranks.count, f.display.plain = r.in(trainFile), r.file.Ranks, r.plain
			f.ranks.wait = 0 // a machine that stalls for minutes must not end a run of hours
			if err := f.run(ctx, r.withoutArguments()); err != nil {
				return trainOutcome{}, err
			}
			return readTraining(r.in(modelFolder), config)
		},
	})
	return err
}

// withoutArguments returns the environment of a command without arguments.
func (r *fileRun) withoutArguments() env {
	e := r.env
	e.args = nil
	return e
}

// readTraining returns the result of the run in a folder.
func readTraining(folder, config string) (t trainOutcome, err error) {
	log, err := record.Read(folder)
	if err != nil {
		return t, err
	}
	if log.Done == nil || len(log.Starts) == 0 {
		return t, fmt.Errorf("the run in %s has not ended", folder)
	}
	latest, err := checkpoint.Latest(folder)
	if err != nil {
		return t, err
	}
	t = trainOutcome{Config: config, Checkpoint: filepath.Base(latest), Loss: float64(log.Done.HeldOut), Tokens: int64(log.Done.Step) * log.Starts[0].Tokens}
	for _, s := range log.Steps {
		t.Seconds += s.Seconds
	}
	return t, nil
}

func (r *fileRun) evaluate(ctx context.Context) (err error) {
	r.done.measured, err = stages.Do(ctx, r.job, stages.Stage[measured]{
		Name: "eval", Inputs: []any{r.done.training, r.done.tokens, r.file.Eval},
		Run: func(ctx context.Context) (measured, error) {
			f := &evalFlags{model: modelFlags{ranks: r.file.Ranks, checkpoint: r.in(modelFolder)}, batch: 8, maxTokens: r.file.Eval.MaxTokens}
			e, err := f.evaluate(ctx)
			if err != nil {
				return measured{}, err
			}
			e.print(r.env.out, false)
			return measured{e.result.Loss, e.result.StdErr, e.result.BitsPerByte(), e.result.Tokens, e.result.Bytes}, nil
		},
	})
	return err
}

// generate writes a text for each prompt, as the model generates it, without a selection.
func (r *fileRun) generate(ctx context.Context) (err error) {
	s := r.file.Sample
	if len(s.Prompts) == 0 {
		return nil
	}
	r.done.sample, err = stages.Do(ctx, r.job, stages.Stage[string]{
		Name: "sample", Inputs: []any{r.done.training, s}, Files: []string{sampleFile},
		Run: func(ctx context.Context) (string, error) {
			var text bytes.Buffer
			f := &generateFlags{}
			f.define(flag.NewFlagSet("generate", flag.ContinueOnError))
			f.model.ranks, f.model.checkpoint, f.prompts = r.file.Ranks, r.in(modelFolder), s.Prompts
			f.options.MaxTokens, f.options.Temperature, f.options.Seed, f.options.Slide = s.MaxTokens, s.Temperature, s.Seed, true
			env := r.withoutArguments()
			env.out, env.errOut = io.MultiWriter(&text, r.env.out), r.env.out
			if err := f.run(ctx, env); err != nil {
				return "", err
			}
			return text.String(), r.write(sampleFile, text.Bytes())
		},
	})
	return err
}

func (r *fileRun) export(ctx context.Context) error {
	_, err := stages.Do(ctx, r.job, stages.Stage[bool]{
		Name: "export", Inputs: []any{r.done.training, r.file.Export}, Files: []string{exported},
		Run: func(ctx context.Context) (bool, error) {
			f := &convertFlags{from: r.in(modelFolder), to: r.in(exported), dtype: r.file.Export.DType, shard: "5GB"}
			return true, f.run(ctx, r.withoutArguments())
		},
	})
	return err
}

// reached returns what the run has reached.
func (r *fileRun) reached() runfile.Reached {
	reached := runfile.Reached{Corpus: r.done.corpus.SHA256, BitsPerByte: r.done.measured.BitsPerByte, Tokens: r.done.training.Tokens}
	var seconds float64
	for _, e := range r.job.Entries {
		reached.Memory = max(reached.Memory, e.Memory)
		if e.Name == "train" {
			e.Seconds = max(e.Seconds, r.done.training.Seconds)
		}
		seconds += e.Seconds
	}
	reached.Time = time.Duration(seconds * float64(time.Second))
	return reached
}

// hashFile returns the SHA-256 of a file.
func hashFile(path string) (string, error) {
	file, _, err := system.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}
