package bpe

// Building a tokenizer from its parts: vocabulary, merges and added tokens.

import (
	"fmt"
	"slices"
)

// EndOfText is the special token that ends a document in new tokenizers, and in GPT-2's.
const EndOfText = "<|endoftext|>"

// endNames are the special tokens that end a document. A tokenizer uses the first one that it has.
var endNames = []string{
	EndOfText, "<｜end▁of▁sentence｜>", "<|end_of_text|>", "</s>", "<eos>", "<|endofdocument|>", "<|im_end|>",
}

// mostHoles is the maximum number of ids of a vocabulary without a token. tiktoken's have a few.
const mostHoles = 1 << 16

// setVocabulary sets the tokens of a model, by id.
func (t *Tokenizer) setVocabulary(tokens [][]byte) error {
	t.tokens = tokens
	for i := range t.bytes {
		t.bytes[i] = -1
	}
	for id, token := range tokens {
		if len(token) == 1 {
			t.bytes[token[0]] = int32(id)
		}
	}
	if b := slices.Index(t.bytes[:], -1); b >= 0 {
		return fmt.Errorf("the vocabulary has no token for byte 0x%02x (%q): expected a byte-level BPE, which has all 256", b, string(alphabet[b]))
	}
	t.end = t.bytes[0]
	return nil
}

// setAdded sets the added tokens, after the vocabulary. Those in the vocabulary keep their ids, and
// decode to the bytes that they spell there if merges make them, as in Hugging Face's tokenizers.
func (t *Tokenizer) setAdded(added []addedToken) error {
	most := len(t.tokens) + len(added) + mostHoles
	for _, a := range added {
		switch {
		case a.Content == "":
			return fmt.Errorf("added token %d is empty: expected its text", a.ID)
		case a.SingleWord:
			return fmt.Errorf("added token %q: single_word is not supported", a.Content)
		case a.ID < 0 || int(a.ID) >= most:
			return fmt.Errorf("added token %q has id %d: expected one from 0 to %d", a.Content, a.ID, most-1)
		}
		for int(a.ID) >= len(t.tokens) {
			t.tokens = append(t.tokens, nil)
		}
		switch old := t.tokens[a.ID]; {
		case old == nil:
			t.tokens[a.ID] = []byte(a.Content)
		case string(old) != a.Content && spell(old) != a.Content:
			return fmt.Errorf("added token %q has id %d, which is that of %q", a.Content, a.ID, old)
		}
	}
	t.added, t.finder = added, newAddedTokens(added)
	for _, name := range endNames {
		if i := slices.IndexFunc(added, func(a addedToken) bool { return a.Special && a.Content == name }); i >= 0 {
			t.end, t.named, t.from = added[i].ID, name, ByName
			break
		}
	}
	return nil
}

// setWhole exempts pieces that are tokens from merging.
func (t *Tokenizer) setWhole() {
	t.whole = make(map[string]int32, len(t.tokens))
	for id, token := range t.tokens {
		if token != nil {
			t.whole[string(token)] = int32(id)
		}
	}
}

// special returns a special token.
func special(id int32, text string) addedToken {
	return addedToken{ID: id, Content: text, Special: true}
}
