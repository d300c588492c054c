package bpe

// Reading tokenizer.json, the file of Hugging Face's tokenizers.

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// maxFile is far above the size of any tokenizer.json, in bytes.
const maxFile = 128 << 20

// file is the part of a tokenizer.json about encoding and decoding. It leaves out the special
// tokens that its post-processor puts around a text, truncation and padding, which are not for
// training.
type file struct {
	Added        []addedToken `json:"added_tokens"`
	Normalizer   *part        `json:"normalizer"`
	PreTokenizer *part        `json:"pre_tokenizer"`
	Decoder      *part        `json:"decoder"`
	Model        model        `json:"model"`
}

// part is a step before or after the model. Its fields depend on its type.
type part struct {
	Type             string   `json:"type"`
	Normalizers      []part   `json:"normalizers"`
	PreTokenizers    []part   `json:"pretokenizers"`
	Decoders         []part   `json:"decoders"`
	Pattern          pattern  `json:"pattern"`
	Behavior         behavior `json:"behavior"`
	Invert           bool     `json:"invert"`
	AddPrefixSpace   *bool    `json:"add_prefix_space"` // true if it is missing
	UseRegex         *bool    `json:"use_regex"`        // true if it is missing
	IndividualDigits bool     `json:"individual_digits"`
}

type pattern struct{ Regex, String *string }

// model is a BPE.
type model struct {
	Type         string           `json:"type"` // missing in old files
	Dropout      float64          `json:"dropout"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       merges           `json:"merges"`
}

// merges are pairs of tokens in the order of their ranks. A file has them as texts with a space or
// as lists.
type merges [][2]string

func (m *merges) UnmarshalJSON(data []byte) error {
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		var pairs [][]string
		if err := json.Unmarshal(data, &pairs); err != nil {
			return errors.New(`merges: expected a list of texts such as "a b", or of lists such as ["a", "b"]`)
		}
		for i, p := range pairs {
			if len(p) != 2 {
				return fmt.Errorf("merge %d has %d tokens: expected 2", i, len(p))
			}
			*m = append(*m, [2]string(p))
		}
		return nil
	}
	for i, text := range texts {
		left, right, ok := strings.Cut(text, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %d is %.100q: expected two tokens and a space between them", i, text)
		}
		*m = append(*m, [2]string{left, right})
	}
	return nil
}

// Open reads a tokenizer.json.
func Open(path string) (*Tokenizer, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", path, maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Parse reads the text of a tokenizer.json, which must not be changed afterwards. It supports
// byte-level BPE models with the pre-tokenizers Split, Digits and ByteLevel, the normalizer NFC and
// the decoder ByteLevel. Anything else is an error that names it.
func Parse(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes: expected a tokenizer.json", maxFile)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, where(err)
	}
	t := &Tokenizer{name: fmt.Sprintf("bpe:%.16x", sha256.Sum256(data)), source: data}
	if err := t.setModel(f.Model, f.Added); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.setAdded(f.Added); err != nil {
		return nil, err
	}
	var err error
	if t.nfc, err = normalizes(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.stages, err = stagesOf(f.PreTokenizer); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if err := checkDecoder(f.Decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return t, nil
}

// where adds the position to an error of the JSON decoder.
func where(err error) error {
	if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
		return fmt.Errorf("byte %d: %w", e.Offset, err)
	}
	if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		return fmt.Errorf("byte %d: %s is a JSON %s: expected another type", e.Offset, e.Field, e.Value)
	}
	return err
}

// setModel sets the vocabulary and the merges.
func (t *Tokenizer) setModel(m model, added []addedToken) error {
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("type %.100q is not supported: expected BPE", m.Type)
	case m.ByteFallback:
		return errors.New("byte_fallback is not supported: expected a byte-level BPE")
	case m.Dropout != 0:
		return fmt.Errorf("dropout is %v: expected none", m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return fmt.Errorf("continuing_subword_prefix %.100q and end_of_word_suffix %.100q are not supported: expected none", m.Prefix, m.Suffix)
	case len(m.Vocab) == 0:
		return errors.New("it has no vocab")
	}
	tokens, err := tokensOf(m, added)
	if err != nil {
		return err
	}
	if err := t.setVocabulary(tokens); err != nil {
		return err
	}
	if m.IgnoreMerges {
		t.setWhole()
	}
	t.rules = make(map[pair]rule, len(m.Merges))
	for rank, p := range m.Merges {
		left, hasLeft := m.Vocab[p[0]]
		right, hasRight := m.Vocab[p[1]]
		both, hasBoth := m.Vocab[p[0]+p[1]]
		if !hasLeft || !hasRight || !hasBoth {
			return fmt.Errorf("merge %d joins %.100q and %.100q: they or the result are not in the vocab", rank, p[0], p[1])
		}
		t.rules[pairOf(left, right)] = rule{uint32(rank), both}
	}
	return nil
}

// tokensOf returns the bytes of the tokens of a vocabulary, by id. Added tokens in it are not in
// the byte spelling, unless they are also bytes, or made by a merge: "é" is the spelling of the
// byte 0xe9.
func tokensOf(m model, added []addedToken) ([][]byte, error) {
	vocab, plain, is := m.Vocab, map[string]bool{}, map[string]bool{}
	for _, a := range added {
		plain[a.Content], is[a.Content] = utf8.RuneCountInString(a.Content) > 1, a.Content != ""
	}
	for _, p := range m.Merges {
		if both := p[0] + p[1]; plain[both] {
			plain[both] = false
		}
	}
	size := int32(0)
	for text, id := range vocab {
		if most := len(vocab) + mostHoles; id < 0 || int(id) >= most {
			return nil, fmt.Errorf("token %.100q has id %d: expected one from 0 to %d", text, id, most-1)
		}
		size = max(size, id+1)
	}
	tokens := make([][]byte, size)
	for text, id := range vocab {
		if tokens[id] != nil {
			return nil, fmt.Errorf("two tokens have id %d, one is %.100q", id, text)
		}
		token, ok := unspell(text)
		if plain[text] || !ok && is[text] {
			token = []byte(text)
		} else if !ok {
			return nil, fmt.Errorf("token %.100q of id %d is not spelled in the characters of a byte-level BPE", text, id)
		}
		tokens[id] = token
	}
	return tokens, nil
}

// normalizes reports whether text is normalized to NFC.
func normalizes(p *part) (nfc bool, err error) {
	switch {
	case p == nil:
		return false, nil
	case p.Type == "NFC":
		return true, nil
	case p.Type != "Sequence":
		return false, fmt.Errorf("type %.100q is not supported: expected NFC or none", p.Type)
	}
	for i := range p.Normalizers {
		is, err := normalizes(&p.Normalizers[i])
		if err != nil {
			return false, err
		}
		nfc = nfc || is
	}
	return nfc, nil
}

func checkDecoder(p *part) error {
	switch {
	case p == nil || p.Type == "ByteLevel":
		return nil
	case p.Type != "Sequence":
		return fmt.Errorf("type %.100q is not supported: expected ByteLevel", p.Type)
	}
	for i := range p.Decoders {
		if err := checkDecoder(&p.Decoders[i]); err != nil {
			return err
		}
	}
	return nil
}
