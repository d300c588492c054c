// Package generate continues texts with a model, on all its ranks, token by token. A text depends
// on the model, the sampling and its own number only: not on the other texts, nor on the number of
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

// Options says how texts are continued.
type Options struct {
	Sampling
	MaxTokens int      // of each text, behind its prompt
	Context   int      // most tokens of a text that the model sees
	Slide     bool     // a full context goes on with its second half; otherwise the text ends
	Stop      []string // texts that end a text, and are no part of it
	Endless   bool     // the model's end of a document does not end a text
}

// Reason says why a text has ended.
type Reason string

// The reasons.
const (
	Length      Reason = "length"      // it has as many tokens as were asked for
	Document    Reason = "end"         // the model has ended the document
	Stopped     Reason = "stop"        // a stop text has come
	Full        Reason = "context"     // the context is full
	Interrupted Reason = "interrupted" // the context of the call has ended
	NotFinite   Reason = "not finite"  // the model's scores are not numbers
)

// Text is the continuation of a prompt.
type Text struct {
	Index        int // of its prompt
	PromptTokens int
	Tokens       []int32
	Text         string // of the tokens, without a stop text
	Reason       Reason
}

// Timing is what rank 0 measured.
type Timing struct {
	Prefill, Decode Rate
}

// Rate is tokens and the time that they took: all of the prompts, or those that were computed one
// by one.
type Rate struct {
	Tokens int
	Time   time.Duration
}

// PerSecond returns tokens a second, 0 if there were none.
func (r Rate) PerSecond() float64 {
	if r.Tokens == 0 {
		return 0
	}
	return float64(r.Tokens) / r.Time.Seconds()
}

// Observer is told of texts as they come, on rank 0. Its functions may be nil.
type Observer struct {
	Piece func(index int, piece string) // whole runes, as soon as they are settled
	Text  func(Text)                    // texts that have ended, in the order of their prompts
}

// Generator is one rank's part of what continues texts.
type Generator struct {
	Ex        *tensor.Exec
	Comm      *collective.Comm
	Model     *moe.Model
	Tokenizer datasets.Tokenizer
	Observer  Observer
}

// Check reports what keeps prompts from being continued with this model and tokenizer.
func Check(cfg moe.Config, t datasets.Tokenizer, prompts []string, o Options) error {
	if err := o.Sampling.Validate(); err != nil {
		return err
	}
	switch {
	case o.MaxTokens < 1:
		return fmt.Errorf("%d tokens are asked for: give 1 or more", o.MaxTokens)
	case o.Context < 1 || o.Context > cfg.MaxPositions:
		return fmt.Errorf("the context is of %d tokens: give 1 to %d (model.max_positions)", o.Context, cfg.MaxPositions)
	case t.VocabSize() > cfg.Vocab:
		return fmt.Errorf("tokenizer %s has %d ids, the model's vocabulary %d: give the tokenizer that the model was trained with", t.Name(), t.VocabSize(), cfg.Vocab)
	case len(prompts) == 0:
		return errors.New("there is no prompt")
	}
	for _, s := range o.Stop {
		if s == "" {
			return errors.New("a stop text is empty: leave it out")
		}
	}
	for i, p := range prompts {
		if n := len(encode(t, p)); n > o.Context && !o.Slide {
			return fmt.Errorf("prompt %d has %d tokens, the context is of %d: give a shorter one or a longer context", i+1, n, o.Context)
		}
	}
	return nil
}

// encode returns the tokens of a prompt; an empty one begins a document, behind the end of another.
func encode(t datasets.Tokenizer, prompt string) []int32 {
	if prompt == "" {
		return t.Encode([]byte{0})
	}
	return datasets.EncodePrompt(t, []byte(prompt))
}

// Run continues prompts, which Check has approved, until all have ended or ctx has: then texts are
// what there is of them. It is collective, and returns the same texts on all ranks.
func (g *Generator) Run(ctx context.Context, prompts []string, o Options) ([]Text, Timing, error) {
	decoder, err := g.Model.NewDecoder(g.Ex, o.Context)
	if err != nil {
		return nil, Timing{}, err
	}
	b := &batch{Generator: g, ctx: ctx, options: o, decoder: decoder, end: -1, sampler: sampler{Sampling: o.Sampling}, texts: make([]Text, len(prompts))}
	if end := g.Tokenizer.Encode([]byte{0}); len(end) == 1 && !o.Endless {
		b.end = end[0]
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
