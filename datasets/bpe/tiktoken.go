package bpe

// The encodings of tiktoken, OpenAI's tokenizers. Their vocabularies are embedded in the program.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	loader "github.com/pkoukk/tiktoken-go-loader"
)

// encoding is what a tokenizer has in addition to a list of tokens. Sources:
// tiktoken_ext/openai_public.py.
type encoding struct {
	pattern string
	added   []addedToken
}

var (
	gpt2Encoding = encoding{gpt2Pattern, []addedToken{special(50256, EndOfText)}}
	encodings    = map[string]encoding{
		"r50k_base": gpt2Encoding,
		"p50k_base": gpt2Encoding,
		"cl100k_base": {cl100kPattern, []addedToken{
			special(100257, EndOfText), special(100258, "<|fim_prefix|>"), special(100259, "<|fim_middle|>"),
			special(100260, "<|fim_suffix|>"), special(100276, "<|endofprompt|>"),
		}},
		"o200k_base": {o200kPattern, []addedToken{special(199999, EndOfText), special(200018, "<|endofprompt|>")}},
	}
)

// Tiktoken returns the tokenizer of an encoding: cl100k_base, o200k_base, p50k_base or r50k_base,
// which is also gpt2.
func Tiktoken(name string) (*Tokenizer, error) {
	if name == "gpt2" {
		name = "r50k_base"
	}
	e, ok := encodings[name]
	if !ok {
		return nil, fmt.Errorf("tiktoken has no encoding %q: use gpt2, %s", name, strings.Join(slices.Sorted(maps.Keys(encodings)), ", "))
	}
	ids, err := loader.NewOfflineLoader().LoadTiktokenBpe(name + ".tiktoken")
	if err != nil {
		return nil, fmt.Errorf("tiktoken encoding %s: %w", name, err)
	}
	t := &Tokenizer{name: "tiktoken:" + name, rules: splits(ids), pattern: e.pattern}
	tokens := make([][]byte, len(ids)+1) // p50k_base leaves a hole for its special token
	for text, id := range ids {
		tokens[id] = []byte(text)
	}
	if tokens[len(ids)] == nil {
		tokens = tokens[:len(ids)]
	}
	if err := t.setVocabulary(tokens); err != nil {
		return nil, err
	}
	t.setWhole()
	t.stages = []stage{splitStage{match: byHand(e.pattern), behavior: isolated}}
	return t, t.setAdded(e.added)
}

// splits returns the merges of a list of tokens: any two tokens that form a third one, whose id is
// the rank.
func splits(ids map[string]int) map[pair]rule {
	rules := make(map[pair]rule, 3*len(ids))
	for text, id := range ids {
		for i := 1; i < len(text); i++ {
			left, hasLeft := ids[text[:i]]
			right, hasRight := ids[text[i:]]
			if hasLeft && hasRight {
				rules[pairOf(int32(left), int32(right))] = rule{uint32(id), int32(id)}
			}
		}
	}
	return rules
}
