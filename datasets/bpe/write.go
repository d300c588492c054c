package bpe

// Writing tokenizer.json.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// JSON returns the tokenizer as a tokenizer.json, which Hugging Face's tokenizers load. If it was
// read from one, that is returned unchanged.
func (t *Tokenizer) JSON() ([]byte, error) {
	if t.source != nil {
		return t.source, nil
	}
	byRank := slices.SortedFunc(maps.Keys(t.rules), func(a, b pair) int {
		return cmp.Or(cmp.Compare(t.rules[a].rank, t.rules[b].rank), cmp.Compare(a, b))
	})
	return layout{tokens: t.tokens, merges: byRank, pattern: t.pattern, added: t.added, whole: t.whole != nil}.encode()
}

// Bytes returns the tokenizer.json of the tokenizer whose ids are the bytes.
func Bytes() ([]byte, error) {
	l := layout{pattern: gpt2Pattern}
	for b := range 256 {
		l.tokens = append(l.tokens, []byte{byte(b)})
	}
	return l.encode()
}

// layout holds the content of a tokenizer.json.
type layout struct {
	tokens  [][]byte // by id, including added ones
	merges  []pair   // by rank
	pattern string
	added   []addedToken
	whole   bool // pieces that are tokens are not merged
}

func (l layout) encode() ([]byte, error) {
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	split := map[string]any{"type": "Split", "pattern": map[string]string{"Regex": l.pattern}, "behavior": isolated, "invert": false}
	merges := make([]string, len(l.merges))
	for i, p := range l.merges {
		merges[i] = spell(l.tokens[p.left()]) + " " + spell(l.tokens[p.right()])
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(struct {
		Version       string         `json:"version"`
		Truncation    *part          `json:"truncation"`
		Padding       *part          `json:"padding"`
		Added         []addedToken   `json:"added_tokens"`
		Normalizer    *part          `json:"normalizer"`
		PreTokenizer  map[string]any `json:"pre_tokenizer"`
		PostProcessor *part          `json:"post_processor"`
		Decoder       map[string]any `json:"decoder"`
		Model         any            `json:"model"`
	}{
		Version: "1.0", Added: append([]addedToken{}, l.added...), Decoder: byteLevel,
		PreTokenizer: map[string]any{"type": "Sequence", "pretokenizers": []any{split, byteLevel}},
		Model: struct {
			Type         string     `json:"type"`
			Dropout      *float64   `json:"dropout"`
			Unknown      *string    `json:"unk_token"`
			Prefix       *string    `json:"continuing_subword_prefix"`
			Suffix       *string    `json:"end_of_word_suffix"`
			FuseUnknown  bool       `json:"fuse_unk"`
			ByteFallback bool       `json:"byte_fallback"`
			IgnoreMerges bool       `json:"ignore_merges"`
			Vocab        vocabulary `json:"vocab"`
			Merges       []string   `json:"merges"`
		}{Type: "BPE", IgnoreMerges: l.whole, Vocab: l.tokens, Merges: merges},
	})
	return out.Bytes(), err
}

// vocabulary is a JSON object from the spelling of tokens to their ids, in the order of the ids.
type vocabulary [][]byte

func (v vocabulary) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	first := true
	for id, token := range v {
		if token == nil {
			continue
		}
		if !first {
			out.WriteByte(',')
		}
		first = false
		if err := encoder.Encode(spell(token)); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := encoder.Encode(id); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
