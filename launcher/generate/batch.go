package generate

import (
	"context"
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/moe"
)

// Texts are computed in rounds. Every rank knows all texts and computes some: rank r of N peers
// computes the texts of prompts i with i mod N = r. A round computes one token of each text on its
// rank, which samples the next token, and ends with an exchange of the sampled tokens. In a
// pipeline a token passes the ranks with the same r, and the one with the head samples.

const (
	// liveTexts is the number of texts that a rank computes at the same time.
	liveTexts = 16
	// prefillTokens is the number of prompt tokens per pass.
	prefillTokens = 256
)

// batch is the state of the texts on one rank.
type batch struct {
	*Generator
	ctx           context.Context
	options       Options
	decoder       *moe.Decoder
	sampler       sampler
	end           int32 // the token that ends a document; -1: none
	waiting, live []*sequence
	texts         []Text // of all prompts
	timing        Timing
	measured      *passExperts // nil: log-probabilities are not asked for
}

// sequence is one text.
type sequence struct {
	index  int
	text   text
	tokens []int32 // all tokens, including the prompt's
	first  int     // index of the first token after the prompt
	mine   bool    // this rank computes it, or its stages do
	cache  *moe.Cache
	known  int   // tokens in the cache; the same on all ranks
	drawn  int32 // the next token, on the rank that sampled it: drawnNothing or above

	next    Token // on the ranks that computed it
	sampled []Token
}

// The encoding of a sampled token in the sum over the ranks, only one of which has sampled it.
const (
	drawnNothing = 1 // because scores are not finite
	drawnToken   = 2 // the first token
)

func (b *batch) newSequence(index int, prompt string) *sequence {
	tokens := Encode(b.Tokenizer, prompt)
	return &sequence{
		index:  index,
		tokens: tokens,
		first:  len(tokens),
		mine:   index%b.Peers.Size() == b.Peers.Rank(),
		text:   text{tokenizer: b.Tokenizer, stops: b.options.Stop},
	}
}

// round admits waiting texts, computes a token of each text, and appends the sampled tokens.
func (b *batch) round() error {
	begin, stepped := time.Now(), 0
	if len(b.live) > 0 {
		var err error
		if stepped, err = b.step(); err != nil {
			return err
		}
	}
	b.timing.Decode.add(stepped, begin)
	for len(b.waiting) > 0 && len(b.live) < liveTexts*b.Peers.Size() {
		s := b.waiting[0]
		b.waiting, b.live = b.waiting[1:], append(b.live, s)
		begin := time.Now()
		stopped, err := b.prefill(s)
		if err != nil {
			return err
		}
		b.timing.Prefill.add(s.known, begin)
		if stopped {
			break
		}
	}
	begin = time.Now()
	drawn, stopped, err := b.exchange()
	b.timing.Decode.add(0, begin)
	if err != nil {
		return err
	}
	if err := b.measured.share(b, drawn); err != nil {
		return err
	}
	b.take(drawn, stopped)
	return nil
}

// add counts tokens and the time since begin.
func (r *Rate) add(tokens int, begin time.Time) {
	r.Tokens += tokens
	r.Time += time.Since(begin)
}

// step computes the last token of each live text.
func (b *batch) step() (n int, err error) {
	var caches []*moe.Cache
	var tokens []int32
	var mine []*sequence
	for _, s := range b.live {
		if s.known == b.options.Context {
			if _, err := b.prefill(s); err != nil {
				return n, err
			}
			continue
		}
		if n++; s.mine {
			mine, caches, tokens = append(mine, s), append(caches, s.cache), append(tokens, s.tokens[len(s.tokens)-1])
		}
		s.known++
	}
	if n == 0 {
		return n, nil
	}
	scores, err := b.decoder.Step(b.Ex, caches, tokens)
	if err != nil {
		return n, err
	}
	for i, s := range mine {
		if scores.Valid() { // on the rank with the head
			b.draw(s, scores.Index(i).F32())
		}
	}
	b.measured.note(b, len(mine), mine...)
	return n, nil
}

// prefill computes all tokens of a text or, if they are too many, the last half of the context.
// stopped says that the ranks have agreed to stop first.
func (b *batch) prefill(s *sequence) (stopped bool, err error) {
	tokens := s.tokens
	if len(tokens) > b.options.Context || s.known > 0 {
		tokens = tokens[len(tokens)-min(max(b.options.Context/2, 1), len(tokens)):]
	}
	s.known = 0
	if s.mine && s.cache == nil {
		s.cache = b.decoder.NewCache(min(b.options.Context, s.first+b.options.MaxTokens))
	} else if s.mine {
		s.cache.Reset()
	}
	for len(tokens) > 0 {
		if s.known > 0 {
			if stopped, err = b.stopped(); stopped || err != nil {
				return stopped, err
			}
		}
		part := tokens[:min(prefillTokens, len(tokens))]
		tokens = tokens[len(part):]
		s.known += len(part)
		if !s.mine {
			part = nil
		}
		scores, err := b.decoder.Extend(b.Ex, s.cache, part)
		if err != nil {
			return false, err
		}
		if scores != nil && len(tokens) == 0 {
			b.draw(s, scores)
		}
		if s.mine && len(tokens) == 0 {
			b.measured.note(b, len(part), s)
		}
	}
	return false, nil
}

// draw samples the token that follows a text. It never samples ids that the tokenizer does not
// have.
func (b *batch) draw(s *sequence, scores []float32) {
	token, ok := b.sampler.draw(scores[:b.Tokenizer.VocabSize()], s.index, len(s.tokens)-s.first)
	if s.drawn = drawnNothing; ok {
		s.drawn = drawnToken + token
	}
}

// stopped lets the ranks agree on whether to stop.
func (b *batch) stopped() (bool, error) {
	_, stopped, err := b.sum(nil)
	return stopped, err
}

// exchange sends all ranks the sampled tokens of the live texts, and whether a rank was asked to
// stop.
func (b *batch) exchange() (drawn []int32, stopped bool, err error) {
	drawn = make([]int32, len(b.live))
	for i, s := range b.live {
		drawn[i], s.drawn = s.drawn, 0
	}
	return b.sum(drawn)
}

func (b *batch) sum(drawn []int32) ([]int32, bool, error) {
	all := append(drawn, 0)
	if b.ctx.Err() != nil {
		all[len(drawn)] = 1
	}
	if err := collective.AllReduce(b.Comm, all, collective.Sum); err != nil {
		return nil, false, fmt.Errorf("exchanging tokens: %w", err)
	}
	return all[:len(drawn)], all[len(drawn)] > 0, nil
}

// take appends the sampled tokens to the live texts and ends the texts that are complete. It
// depends only on what is the same on all ranks.
func (b *batch) take(drawn []int32, stopped bool) {
	live := b.live[:0]
	for i, s := range b.live {
		reason := Reason("")
		switch token := drawn[i] - drawnToken; {
		case drawn[i] >= drawnToken:
			reason = b.write(s, token)
		case drawn[i] == drawnNothing:
			reason = NotFinite
		}
		if reason == "" && stopped {
			reason = Interrupted
		}
		if reason == "" {
			live = append(live, s)
			continue
		}
		b.finish(s, reason)
	}
	b.live = live
	if stopped {
		for _, s := range b.waiting {
			b.finish(s, Interrupted)
		}
		b.waiting = nil
	}
}

// write appends a token to a text and returns the reason if the text has ended.
func (b *batch) write(s *sequence, token int32) Reason {
	if token == b.end {
		return Document
	}
	s.tokens = append(s.tokens, token)
	piece, stopped := s.text.add(token)
	b.show(s, piece)
	switch {
	case stopped:
		return Stopped
	case len(s.tokens)-s.first == b.options.MaxTokens:
		return Length
	case s.known == b.options.Context && !b.options.Slide:
		return Full
	}
	return ""
}

// show passes on a piece of a text, on rank 0.
func (b *batch) show(s *sequence, piece string) {
	if piece != "" && b.Comm.Rank() == 0 && b.Piece != nil {
		b.Piece(s.index, piece)
	}
}

// finish ends a text and releases its cache.
func (b *batch) finish(s *sequence, why Reason) {
	b.show(s, s.text.rest())
	s.cache = nil
	b.texts[s.index] = Text{
		Index:        s.index,
		PromptTokens: s.first,
		Tokens:       s.tokens[s.first:],
		Text:         string(s.text.written),
		Reason:       why,
		Sampled:      s.sampled,
	}
}
