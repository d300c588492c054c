package bpe

// Training: the pair of adjacent tokens that occurs most often in all words becomes a token,
// repeatedly. Counts are updated merge by merge, and only the words that contain the pair are
// visited.

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// The sizes of a vocabulary that can be trained. The smallest has the end of text and the bytes.
const (
	MinVocab = 1 + 256
	MaxVocab = 1 << 20
)

// Train trains a tokenizer of at most vocab tokens on documents. Its tokens are [EndOfText], the
// 256 bytes in the order of their characters in tokenizer.json, and merges of pairs that occur at
// least twice. The most frequent pair comes first, and of equals the one with the lowest ids, as in
// Hugging Face's trainer. Pieces are those of cl100k_base. The result depends only on the
// documents. Each document must not change until the next one is requested.
func Train(ctx context.Context, documents iter.Seq[[]byte], vocab int) (*Tokenizer, error) {
	if vocab < MinVocab || vocab > MaxVocab {
		return nil, fmt.Errorf("a vocabulary of %d tokens: expected %d to %d", vocab, MinVocab, MaxVocab)
	}
	counts, err := countWords(ctx, documents)
	if err != nil {
		return nil, err
	}
	l := layout{
		pattern: cl100kPattern,
		added:   []addedToken{special(0, EndOfText)},
		tokens:  [][]byte{[]byte(EndOfText)},
	}
	var bytes [256]int32
	order := make([]byte, 256)
	for i := range order {
		order[i] = byte(i)
	}
	slices.SortFunc(order, func(a, b byte) int { return cmp.Compare(alphabet[a], alphabet[b]) })
	for _, b := range order {
		bytes[b] = int32(len(l.tokens))
		l.tokens = append(l.tokens, []byte{b})
	}
	tr := newTraining(counts, &bytes)
	for len(l.tokens) < vocab {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		best, ok := tr.best()
		if !ok {
			break
		}
		tr.merge(best, int32(len(l.tokens)))
		l.merges = append(l.merges, best)
		l.tokens = append(l.tokens, slices.Concat(l.tokens[best.left()], l.tokens[best.right()]))
	}
	data, err := l.encode()
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// training is the state between two merges.
type training struct {
	words   []word
	pairs   map[pair]*occurrences
	queue   heap[candidate]
	changed []pair // that occur more often since the merge began
}

// word is a piece of the text: its tokens and the number of its occurrences.
type word struct {
	tokens []int32
	count  int64
}

// occurrences is the number of occurrences of a pair, and the words in which it occurs or did.
type occurrences struct {
	count   int64
	words   []int32
	changed bool
}

// candidate is a pair with an earlier count, which may have decreased since.
type candidate struct {
	count int64
	pair  pair
}

func newTraining(counts map[string]int64, bytes *[256]int32) *training {
	tr := &training{pairs: map[pair]*occurrences{}}
	tr.queue.less = func(a, b candidate) bool {
		return a.count > b.count || a.count == b.count && a.pair < b.pair
	}
	size := 0
	for text := range counts {
		size += len(text)
	}
	room := make([]int32, 0, size) // of all words, adjacent
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		from := len(room)
		for i := range len(text) {
			room = append(room, bytes[text[i]])
		}
		w := word{room[from:len(room):len(room)], counts[text]}
		tr.words = append(tr.words, w)
		for i := 1; i < len(w.tokens); i++ {
			tr.add(pairOf(w.tokens[i-1], w.tokens[i]), len(tr.words)-1)
		}
	}
	tr.offer()
	return tr
}

// add counts a pair that has appeared in a word.
func (tr *training) add(p pair, in int) {
	o := tr.pairs[p]
	if o == nil {
		o = &occurrences{}
		tr.pairs[p] = o
	}
	o.count += tr.words[in].count
	if n := len(o.words); n == 0 || o.words[n-1] != int32(in) {
		o.words = append(o.words, int32(in))
	}
	if !o.changed {
		o.changed = true
		tr.changed = append(tr.changed, p)
	}
}

// remove is the inverse of add. The pair that is being merged is no longer counted.
func (tr *training) remove(p pair, in int) {
	if o := tr.pairs[p]; o != nil {
		o.count -= tr.words[in].count
	}
}

// offer queues the pairs that occur more often than before.
func (tr *training) offer() {
	for _, p := range tr.changed {
		o := tr.pairs[p]
		o.changed = false
		tr.queue.push(candidate{o.count, p})
	}
	tr.changed = tr.changed[:0]
}

// best returns the pair to merge next; ok is false if none occurs twice.
func (tr *training) best() (p pair, ok bool) {
	for len(tr.queue.items) > 0 {
		c := tr.queue.pop()
		o := tr.pairs[c.pair]
		switch {
		case o == nil: // merged already
		case o.count == c.count && c.count >= 2:
			return c.pair, true
		case o.count < c.count:
			tr.queue.push(candidate{o.count, c.pair})
		}
	}
	return 0, false
}

// merge replaces each occurrence of a pair by the token id.
func (tr *training) merge(p pair, id int32) {
	where := tr.pairs[p].words
	delete(tr.pairs, p)
	for _, in := range where {
		tr.mergeIn(int(in), p, id)
	}
	tr.offer()
}

// mergeIn merges in one word, from left to right.
func (tr *training) mergeIn(in int, p pair, id int32) {
	left, right := p.left(), p.right()
	tokens := tr.words[in].tokens
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		if i+1 == len(tokens) || tokens[i] != left || tokens[i+1] != right {
			out = append(out, tokens[i])
			continue
		}
		if n := len(out); n > 0 {
			tr.remove(pairOf(out[n-1], left), in)
			tr.add(pairOf(out[n-1], id), in)
		}
		if i+2 < len(tokens) {
			tr.remove(pairOf(right, tokens[i+2]), in)
			tr.add(pairOf(id, tokens[i+2]), in)
		}
		out = append(out, id)
		i++
	}
	tr.words[in].tokens = out
}
