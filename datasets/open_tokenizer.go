package datasets

// Opening tokenizers by the name that a user or a configuration gives, and from a run's folder.

import (
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
func OpenTokenizer(name string) (Tokenizer, error) {
	if encoding, ok := strings.CutPrefix(name, tiktokenPrefix); ok {
		return opened(bpe.Tiktoken(encoding))
	}
	if !TokenizerInFile(name) {
		return Bytes{}, nil
	}
	path := name
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, TokenizerFile)
	} else if err == nil {
		if t, ok, err := carriedTokenizer(path); err != nil || ok {
			return t, err
		}
	}
	t, err := opened(bpe.Open(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer %q: %w: use bytes, tiktoken:cl100k_base, or the path of a %s", name, err, TokenizerFile)
	} else if err != nil {
		return nil, fmt.Errorf("tokenizer %w", err)
	}
	return t, nil
}

// opened keeps a nil pointer from becoming a Tokenizer.
func opened(t *bpe.Tokenizer, err error) (Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// RunTokenizer returns the tokenizer with the name in a run's configuration, from the folder of the
// run, of one of its checkpoints, or of a model converted from it. The folder's own copy takes
// precedence over the file of that name.
func RunTokenizer(folder, name string) (Tokenizer, error) {
	if !TokenizerInFile(name) {
		return OpenTokenizer(name)
	}
	own := filepath.Join(folder, TokenizerFile)
	if _, err := os.Stat(own); errors.Is(err, fs.ErrNotExist) {
		return OpenTokenizer(name)
	}
	return OpenTokenizer(own)
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

// EncodePrompt returns the ids of text in which special tokens, such as <|endoftext|>, stand for
// themselves, if the tokenizer has any. It is for a user's prompts, not for untrusted text.
func EncodePrompt(t Tokenizer, text []byte) []int32 {
	if s, ok := t.(interface{ EncodeSpecial(text []byte) []int32 }); ok {
		return s.EncodeSpecial(text)
	}
	return t.Encode(text)
}
