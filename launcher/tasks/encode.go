package tasks

import (
	"fmt"

	"spmoe/datasets"
)

// Encoder turns texts into tokens.
type Encoder struct {
	Tokenizer datasets.Tokenizer
	Begin     string // a special token that every text begins with; empty: none
	Context   int    // the maximum number of tokens that the model sees
}

// request is a text whose last tokens are scored.
type request struct {
	tokens []int32 // all but the last are inputs
	scored int     // the number of tokens at the end that count
	cut    bool    // the context has lost its beginning
}

// requests returns one request per choice of the item.
func (e *Encoder) requests(it *Item) (all []request, err error) {
	for i := range it.Choices {
		r, err := e.request(it.Context, it.continuation(i))
		if err != nil {
			return nil, fmt.Errorf("choice %d: %w", i+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// request splits the tokens of the whole text where those of the context alone end. White space at
// the end of the context counts as part of the continuation, because most tokenizers put a space in
// the same token as the word after it. A context that is too long loses its beginning.
func (e *Encoder) request(context, continuation string) (r request, err error) {
	kept := rstrip(context)
	continuation, context = context[len(kept):]+continuation, kept
	before := e.encode(e.Begin + context)
	after := e.encode(e.Begin + context + continuation)
	after = after[min(len(before), len(after)):]
	if e.Begin+context == "" {
		before = e.Tokenizer.Encode([]byte{0}) // as after the end of a document
	}
	if len(after) == 0 {
		return r, fmt.Errorf("%.100q adds no token to its context: it cannot be scored", continuation)
	}
	if len(after) > e.Context {
		return r, fmt.Errorf("%.100q has %d tokens, but the model sees %d: give a longer --seq", continuation, len(after), e.Context)
	}
	r.tokens, r.scored = append(before[:len(before):len(before)], after...), len(after)
	if most := e.Context + 1; len(r.tokens) > most {
		r.tokens, r.cut = r.tokens[len(r.tokens)-most:], true
	}
	return r, nil
}

// encode returns the tokens of a text.
func (e *Encoder) encode(text string) []int32 {
	if text == "" {
		return nil
	}
	return e.Tokenizer.Encode([]byte(text))
}
