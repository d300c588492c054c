package bpe

// Encoding and decoding.

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer maps text to ids and back. It is safe for concurrent use.
type Tokenizer struct {
	// Encode is EncodeSpecial. It must be set before anything is encoded.
	TakeSpecial bool

	name   string
	tokens [][]byte      // the text of each id; nil for an id without a token
	bytes  [256]int32    // the id of each byte
	rules  map[pair]rule // merges of pairs of tokens
	// pieces that are not merged, because they are already tokens; nil: none
	whole  map[string]int32
	stages []stage
	added  []addedToken
	finder *addedTokens
	nfc    bool   // text is normalized to NFC
	end    int32  // the id of a NUL byte, the end of a document
	named  string // the text of that token, unless it is a NUL
	from   string // see End

	source  []byte // the tokenizer.json that it was read from, if any
	pattern string // of its only stage, otherwise empty

	workers sync.Pool // of *worker
}

// Name returns "tiktoken:" and the name of the encoding, or "bpe:" and the beginning of the SHA-256
// of the tokenizer.json. If [Tokenizer.SetEnd] has changed the end of documents, its id follows.
// [Taken] stands at the end if special tokens are taken.
func (t *Tokenizer) Name() string {
	if t.TakeSpecial {
		return t.name + Taken
	}
	return t.name
}

// Taken is the end of the name of a tokenizer that takes special tokens.
const Taken = "+special"

// Cut counts the special tokens that are spelled in text; nil: none. If they are taken, those that
// end documents cut the text into parts.
func (t *Tokenizer) Cut(text []byte) (parts [][]byte, special map[string]int) {
	from := 0
	for at := 0; at < len(text); {
		token, start, end := t.finder.find(text[at:], true)
		if token.Special && special == nil {
			special = map[string]int{}
		}
		if token.Special {
			special[token.Content]++
		}
		if token.Special && token.ID == t.end && t.TakeSpecial {
			parts, from = append(parts, text[from:at+start]), at+end
		}
		at += end
	}
	return append(parts, text[from:]), special
}

// VocabSize returns one more than the largest id. Ids without a token decode to nothing.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// End returns the id that ends documents, its text, and where it was named: [ByName], or as
// [Tokenizer.SetEnd] was told; empty: nothing did, so it is that of the byte NUL.
func (t *Tokenizer) End() (id int32, text, from string) { return t.end, t.named, t.from }

// ByName says that a special token with a known name ends documents.
const ByName = "by its name"

// SetEnd makes a token end documents: an added token, or else one of the vocabulary, as it is
// spelled there or as text. If that was another one, the tokenizer gets another name. It must be
// called before anything is encoded.
func (t *Tokenizer) SetEnd(token, from string) error {
	id := int32(-1)
	if i := slices.IndexFunc(t.added, func(a addedToken) bool { return a.Content == token }); i >= 0 {
		id = t.added[i].ID
	} else if token != "" {
		id = int32(slices.IndexFunc(t.tokens, func(text []byte) bool { return spell(text) == token || string(text) == token }))
	}
	if id < 0 {
		return fmt.Errorf("the tokenizer has no token %.100q to end documents with", token)
	}
	if id != t.end {
		t.end, t.name = id, fmt.Sprintf("%s+end%d", t.name, id)
	}
	t.named, t.from = token, from
	return nil
}

// Encode returns the ids of text, in which special tokens are ordinary text unless
// TakeSpecial is set. A NUL byte becomes the end of a document: the tokenizer's
// special token for it, or the byte if it has none.
func (t *Tokenizer) Encode(text []byte) []int32 { return t.encode(text, t.TakeSpecial) }

// EncodeSpecial is Encode for text in which special tokens stand for themselves, as in Hugging
// Face's tokenizers. It is for prompts, not for untrusted text.
func (t *Tokenizer) EncodeSpecial(text []byte) []int32 { return t.encode(text, true) }

// Decode returns the text of ids. The end of a document becomes a NUL byte. An id outside [0,
// VocabSize) is a programming error and panics.
func (t *Tokenizer) Decode(ids []int32) []byte {
	var text []byte
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.tokens) {
			panic(fmt.Sprintf("bpe: id %d at %d is outside a vocabulary of %d", id, i, len(t.tokens)))
		}
		if id == t.end {
			text = append(text, 0)
		} else {
			text = append(text, t.tokens[id]...)
		}
	}
	return text
}

func (t *Tokenizer) encode(text []byte, special bool) []int32 {
	w, ok := t.workers.Get().(*worker)
	if !ok {
		w = t.newWorker()
	}
	w.ids = make([]int32, 0, len(text)/4+8)
	for len(text) > 0 {
		part, after, ended := bytes.Cut(text, []byte{0})
		w.part(part, special)
		if ended {
			w.ids = append(w.ids, t.end)
		}
		text = after
	}
	ids := w.ids
	w.ids = nil
	t.workers.Put(w)
	return ids
}

// The limits of a worker's cache of words.
const (
	cachedPieces = 1 << 16
	cachedBytes  = 64 // of the longest cached piece
)

// worker encodes one text at a time.
type worker struct {
	*Tokenizer
	merger merger
	pieces func(text []byte) // passes a text through the stages
	ids    []int32
	cache  map[string]span // of pieces
	known  []int32         // their ids
}

// span is a range of known.
type span struct{ from, to uint32 }

func (t *Tokenizer) newWorker() *worker {
	w := &worker{Tokenizer: t, merger: newMerger(t.rules), cache: map[string]span{}}
	w.pieces = chain(t.stages, w.piece)
	return w
}

// part encodes text without NUL bytes.
func (w *worker) part(text []byte, special bool) {
	for len(text) > 0 {
		token, start, end := w.finder.find(text, special)
		if start > 0 {
			w.plain(text[:start])
		}
		if end > start {
			w.ids = append(w.ids, token.ID)
		}
		text = text[end:]
	}
}

// plain encodes nonempty text without added tokens.
func (w *worker) plain(text []byte) {
	if w.nfc {
		text = norm.NFC.Bytes(text)
	}
	w.pieces(text)
}

func (w *worker) piece(piece []byte) {
	if s, ok := w.cache[string(piece)]; ok {
		w.ids = append(w.ids, w.known[s.from:s.to]...)
		return
	}
	at := len(w.ids)
	if id, ok := w.whole[string(piece)]; ok {
		w.ids = append(w.ids, id)
	} else {
		w.ids = w.merger.merge(w.ids, piece, &w.bytes)
	}
	if len(piece) > cachedBytes {
		return
	}
	if len(w.cache) == cachedPieces {
		clear(w.cache)
		w.known = w.known[:0]
	}
	from := len(w.known)
	w.known = append(w.known, w.ids[at:]...)
	w.cache[string(piece)] = span{uint32(from), uint32(len(w.known))}
}
