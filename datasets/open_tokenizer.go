package datasets

// Opening tokenizers by the name that a user or a configuration gives, and from a run's folder.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spmoe/datasets/bpe"
)

// TokenizerFile is the name of the tokenizer's file in a run's folder, in its checkpoints and in
// Hugging Face's folders.
const TokenizerFile = "tokenizer.json"

// tiktokenPrefix is the prefix of the names of tiktoken's encodings.
const tiktokenPrefix = "tiktoken:"

// TokenizerInFile reports whether a tokenizer of that name is in a file. The others are built in.
func TokenizerInFile(name string) bool {
	return name != "" && name != Bytes{}.Name() && !strings.HasPrefix(name, tiktokenPrefix)
}

// OpenTokenizer returns the tokenizer with a name: "bytes", or an empty name, for the byte
// tokenizer; a name such as "tiktoken:cl100k_base" for an encoding of tiktoken; otherwise the path
// of a Hugging Face tokenizer.json, of a folder that has one, or of a token file that carries its
// tokenizer.
func OpenTokenizer(name string) (Tokenizer, error) { return NewTokenizer(name, "") }

// NewTokenizer is OpenTokenizer with a token that ends documents. If end is empty, the files next
// to a tokenizer.json name it, or else the special tokens, see [End].
func NewTokenizer(name, end string) (Tokenizer, error) { return openTokenizer(name, end, true) }

// openTokenizer opens a tokenizer. beside says whether the files next to it count.
func openTokenizer(name, end string, beside bool) (Tokenizer, error) {
	if !TokenizerInFile(name) && end != "" {
		return nil, fmt.Errorf("end_token is %.100q: tokenizer %s ends documents in its own way: leave it out, or give a %s", end, cmp.Or(name, Bytes{}.Name()), TokenizerFile)
	}
	if encoding, ok := strings.CutPrefix(name, tiktokenPrefix); ok {
		encoding, taken := strings.CutSuffix(encoding, bpe.Taken) // of a token file
		t, err := opened(bpe.Tiktoken(encoding))
		if taken && err == nil {
			err = TakeSpecial(t)
		}
		return t, err
	}
	if !TokenizerInFile(name) {
		return Bytes{}, nil
	}
	path := name
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, TokenizerFile)
	} else if err == nil {
		if t, ok, err := carriedTokenizer(path); err != nil || ok {
			return endedBy(t, end, "end_token of the configuration", err)
		}
	}
	t, err := opened(bpe.Open(path))
	if errors.Is(err, fs.ErrNotExist) {
		if _, known := bpe.Tiktoken(name); known == nil {
			return nil, fmt.Errorf("tokenizer %q: %w: did you mean %s%s?", name, err, tiktokenPrefix, name)
		}
		return nil, fmt.Errorf("tokenizer %q: %w: use bytes, tiktoken:cl100k_base, or the path of a %s", name, err, TokenizerFile)
	} else if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return nil, fmt.Errorf("tokenizer %w: it is no JSON: give bytes, tiktoken:cl100k_base, or a Hugging Face %s (data train-tokenizer makes one)", err, TokenizerFile)
	} else if err != nil {
		return nil, fmt.Errorf("tokenizer %w", err)
	}
	from := "end_token of the configuration"
	if beside {
		named, where, err := endBeside(filepath.Dir(path))
		switch {
		case end == "" && err != nil:
			return nil, err
		case end == "" || end == named: // a configuration may have it from there
			end, from = named, where
		}
	}
	return endedBy(t, end, from, nil)
}

// endedBy makes a token end documents, unless it is empty.
func endedBy(t Tokenizer, end, from string, err error) (Tokenizer, error) {
	if err != nil || end == "" {
		return t, err
	}
	own, ok := t.(*bpe.Tokenizer)
	if !ok {
		return nil, fmt.Errorf("end_token is %.100q: tokenizer %s ends documents in its own way: leave it out", end, t.Name())
	}
	if err := own.SetEnd(end, from); err != nil {
		return nil, fmt.Errorf("%w (%s): name one that it has with end_token", err, from)
	}
	return t, nil
}

// End describes what ends the documents of a tokenizer.
type End struct {
	ID   int32
	Text string
	From string // where it was found; empty: it is the byte NUL, because nothing was
	// what a configuration says of it, so that the tokenizer needs no other file; empty: nothing
	Setting string
}

// EndOf returns what ends the documents of a tokenizer: the token that was given, that of the files
// next to it, the special token with a known name, or the byte NUL.
func EndOf(t Tokenizer) End {
	if b, ok := t.(*bpe.Tokenizer); ok {
		if id, text, from := b.End(); from == bpe.ByName {
			return End{ID: id, Text: text, From: from}
		} else if from != "" {
			return End{id, text, from, text}
		}
	}
	ids := t.Encode([]byte{separator})
	return End{ID: ids[len(ids)-1], Text: "the byte NUL"}
}

// mostSettings is far above the size of a tokenizer_config.json, in bytes.
const mostSettings = 64 << 20

// endBeside returns the token that the files next to a tokenizer.json give to the end of a text, or
// else to its beginning. It is empty if there is none.
func endBeside(folder string) (token, from string, err error) {
	for _, key := range []string{"eos_token", "bos_token"} {
		for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
			text, err := readText(filepath.Join(folder, name), mostSettings, unpacked)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return "", "", fmt.Errorf("%s: %w", filepath.Join(folder, name), err)
			}
			var settings map[string]json.RawMessage
			if err := json.Unmarshal(text, &settings); err != nil {
				return "", "", fmt.Errorf("%s: %w: mend it, move it away, or give end_token", filepath.Join(folder, name), err)
			}
			var long struct{ Content string } // an added token
			if json.Unmarshal(settings[key], &token) != nil && json.Unmarshal(settings[key], &long) == nil {
				token = long.Content
			}
			if token != "" {
				return token, key + " of " + name, nil
			}
		}
	}
	return "", "", nil
}

// opened keeps a nil pointer from becoming a Tokenizer.
func opened(t *bpe.Tokenizer, err error) (Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// RunTokenizer returns the tokenizer with the name and the end token in a run's configuration, from
// the folder of the run, of one of its checkpoints, or of a model converted from it. The folder's
// own copy takes precedence over the file of that name. The configuration has what the files next
// to it said when the run began.
func RunTokenizer(folder, name, end string) (Tokenizer, error) {
	if own := filepath.Join(folder, TokenizerFile); TokenizerInFile(name) {
		if _, err := os.Stat(own); !errors.Is(err, fs.ErrNotExist) {
			name = own
		}
	}
	return openTokenizer(name, end, false)
}

// TokenizerCopy returns the content of [TokenizerFile] for a run; nil if the name is sufficient.
func TokenizerCopy(t Tokenizer, name string) ([]byte, error) {
	if !TokenizerInFile(name) {
		return nil, nil
	}
	return TokenizerJSON(t)
}

// TokenizerJSON returns a tokenizer as a tokenizer.json, which Hugging Face's tokenizers load.
func TokenizerJSON(t Tokenizer) ([]byte, error) {
	switch t := t.(type) {
	case Bytes:
		return bpe.Bytes()
	case interface{ JSON() ([]byte, error) }:
		return t.JSON()
	}
	return nil, fmt.Errorf("tokenizer %s has no %s", t.Name(), TokenizerFile)
}
