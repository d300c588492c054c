// Package generate continues texts with a model, on all its ranks, token by token. A text depends
// only on the model, the sampling and its own number: not on the other texts, nor on the number of
// ranks.
package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
)

// Options says how to continue texts.
type Options struct {
	Sampling
	MaxTokens int      // maximum new tokens per text
	Context   int      // maximum context in tokens
	Slide     bool     // continue a full context with its second half; otherwise the text ends
	Stop      []string // stop texts, which are not part of the result
	Endless   bool     // the end-of-document token does not end a text
	LogProbs  bool     // return Text.Sampled
}

// Reason is the reason why a text has ended.
type Reason string

// The reasons.
const (
	Length      Reason = "length"      // it has the requested number of tokens
	Document    Reason = "end"         // the model has ended the document
	Stopped     Reason = "stop"        // a stop text occurred
	Full        Reason = "context"     // the context is full
	Interrupted Reason = "interrupted" // the context of the call was cancelled
	NotFinite   Reason = "not finite"  // the model's scores are not finite
)

// Text is the continuation of a prompt.
type Text struct {
	Index        int // of the prompt
	PromptTokens int
	Tokens       []int32
	Text         string // of the tokens, without a stop text
	Reason       Reason

	// Sampled has, with Options.LogProbs, each token and the one that ended the document.
	Sampled []Token
}

// Token is a sampled token.
type Token struct {
	ID      int32
	LogProb float64 // natural logarithm of its probability, before temperature, top-k and top-p
	Experts []int32 // of the token before it, layer by layer: [layers·topK]
}

// Timing holds the measurements of rank 0.
type Timing struct {
	Prefill, Decode Rate
}

// Rate is a number of tokens and the time that they took: the tokens of all prompts, or those
// computed one by one.
type Rate struct {
	Tokens int
	Time   time.Duration
}

// PerSecond returns tokens/s, or 0 without tokens.
func (r Rate) PerSecond() float64 {
	if r.Tokens == 0 {
		return 0
	}
	return float64(r.Tokens) / r.Time.Seconds()
}

// Model is a model, or this rank's stages of one.
type Model interface {
	NewDecoder(ex *tensor.Exec, context int) (*moe.Decoder, error)
}

// Generator is one rank's part of a generation.
type Generator struct {
	Ex    *tensor.Exec
	Comm  *collective.Comm // all ranks
	Peers *collective.Comm // the ranks with the same stages, which compute different texts
	Model Model

	Tokenizer datasets.Tokenizer
	Piece     func(index int, piece string) // called on rank 0 with whole characters as soon as they are final; may be nil
}

// Check returns an error if prompts cannot be continued with this model and tokenizer.
func Check(cfg moe.Config, t datasets.Tokenizer, prompts []string, o Options) error {
	if err := o.Sampling.Validate(); err != nil {
		return err
	}
	switch {
	case o.MaxTokens < 1:
		return fmt.Errorf("the number of new tokens is %d: give 1 or more", o.MaxTokens)
	case o.Context < 1 || o.Context > cfg.MaxPositions:
		return fmt.Errorf("the context is %d tokens: give 1 to %d (model.max_positions)", o.Context, cfg.MaxPositions)
	case t.VocabSize() > cfg.Vocab:
		return fmt.Errorf("tokenizer %s has %d ids but the model's vocabulary is %d: give the tokenizer that the model was trained with", t.Name(), t.VocabSize(), cfg.Vocab)
	case len(prompts) == 0:
		return errors.New("there is no prompt")
	}
	for _, s := range o.Stop {
		if s == "" {
			return errors.New("a stop text is empty: leave it out")
		}
	}
	for i, p := range prompts {
		if n := len(Encode(t, p)); n > o.Context && !o.Slide {
			return fmt.Errorf("prompt %d has %d tokens, but the context is %d: give a shorter one or a longer context", i+1, n, o.Context)
		}
	}
	return nil
}

// Encode returns the tokens of a prompt. An empty prompt begins a document, after the end of
// another one.
func Encode(t datasets.Tokenizer, prompt string) []int32 {
	if prompt == "" {
		return t.Encode([]byte{0})
	}
	return t.Encode([]byte(prompt))
}

// Run continues prompts, which Check has accepted, until all texts have ended or ctx is cancelled.
// After a cancellation it returns the texts so far. Run is collective, and returns the same texts
// on all ranks.
func (g *Generator) Run(ctx context.Context, prompts []string, o Options) ([]Text, Timing, error) {
	decoder, err := g.Model.NewDecoder(g.Ex, o.Context)
	if err != nil {
		return nil, Timing{}, err
	}
	b := &batch{
		Generator: g,
		ctx:       ctx,
		options:   o,
		decoder:   decoder,
		end:       -1,
		sampler:   sampler{Sampling: o.Sampling},
		texts:     make([]Text, len(prompts)),
	}
	if end := g.Tokenizer.Encode([]byte{0}); len(end) == 1 && !o.Endless {
		b.end = end[0]
	}
	if o.LogProbs {
		b.measure()
	}
	for i, p := range prompts {
		b.waiting = append(b.waiting, b.newSequence(i, p))
	}
	for len(b.waiting)+len(b.live) > 0 {
		if err := b.round(); err != nil {
			return b.texts, b.timing, err
		}
	}
	return b.texts, b.timing, nil
}
