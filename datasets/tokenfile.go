package datasets

// Token files: text that was tokenized once, to train on in place. A token file is an Arrow file
// with one column of lists of integers, one list per document, and two record batches: the training
// and the validation documents.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/datasets/arrowipc"
	"spmoe/datasets/bpe"
)

// tokensColumn is the name of the column.
const tokensColumn = "tokens"

// The metadata of a token file.
const (
	keyFormat       = "spmoe.tokens" // "1"
	keyTokenizer    = "spmoe.tokenizer"
	keyFile         = "spmoe.tokenizer_json" // the tokenizer itself, unless its name is sufficient
	keyEnd          = "spmoe.end_token"      // see End.Setting
	keyVocab        = "spmoe.vocab"
	keyTrain        = "spmoe.train" // fingerprint of the stream
	keyHeldOut      = "spmoe.held_out"
	keyTrainBytes   = "spmoe.train_bytes"
	keyHeldOutBytes = "spmoe.held_out_bytes"
	tokensFormat    = "1"
	mostFingerprint = 128
)

// tokenFile is a token file in memory.
type tokenFile struct {
	train, heldOut Stream
	lists          [2]arrowipc.Lists // of both
	bytes          [2]int64
	tokenizer      string
	carried        string // the tokenizer.json in the file; empty: none
	end            string // its end token, if that was given
	vocab          int
	unmap          func() error
	path           string
}

// openTokens maps a token file into memory.
func openTokens(path string) (*tokenFile, error) {
	b, unmap, err := mapPath(path)
	if err != nil {
		return nil, err
	}
	t, err := parseTokens(b, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data file %s: %w: only token files are read: write text as Parquet, or continue an older run with the launcher of commit %s", path, err, lastFormats), unmap())
	}
	t.unmap = unmap
	return t, nil
}

// mapPath maps the file at path into memory.
func mapPath(path string) (b []byte, unmap func() error, err error) {
	in, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err == nil {
		b, unmap, err = mapFile(in, info.Size())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, unmap, nil
}

// parseTokens checks a token file, except the ids of its training tokens, which are checked when
// they are read. name is for their errors.
func parseTokens(b []byte, name string) (*tokenFile, error) {
	parsed, err := arrowipc.ParseTokens(b, tokensColumn)
	if err != nil {
		return nil, err
	}
	m := parsed.Metadata
	if m[keyFormat] != tokensFormat {
		return nil, fmt.Errorf("it is of format %.20q: expected %q: make it again", m[keyFormat], tokensFormat)
	}
	if len(parsed.Batches) != 2 {
		return nil, fmt.Errorf("it has %d record batches: expected 2, training and validation", len(parsed.Batches))
	}
	t := &tokenFile{path: name, tokenizer: m[keyTokenizer], carried: m[keyFile], end: m[keyEnd]}
	numbers := map[string]int64{}
	for _, key := range []string{keyVocab, keyTrainBytes, keyHeldOutBytes} {
		n, err := strconv.ParseInt(m[key], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("its metadata says that %s is %.40q: expected a number", key, m[key])
		}
		numbers[key] = n
	}
	if t.vocab = int(numbers[keyVocab]); numbers[keyVocab] > math.MaxInt32 {
		return nil, fmt.Errorf("its tokenizer has %d tokens", numbers[keyVocab])
	}
	t.bytes = [2]int64{numbers[keyTrainBytes], numbers[keyHeldOutBytes]}
	sides := [2]*Stream{&t.train, &t.heldOut}
	for i, key := range []string{keyTrain, keyHeldOut} {
		l := parsed.Batches[i]
		if len(m[key]) == 0 || len(m[key]) > mostFingerprint {
			return nil, fmt.Errorf("its metadata has no %s", key)
		}
		t.lists[i] = l
		*sides[i] = Stream{
			half:        l.U16,
			wide:        l.I32,
			vocab:       int32(t.vocab),
			name:        name,
			fingerprint: m[key],
		}
	}
	return t, errors.Join(checkIDs(t.heldOut.half, t.vocab), checkIDs(t.heldOut.wide, t.vocab))
}

// checkIDs checks validation ids.
func checkIDs[T uint16 | int32](ids []T, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("validation token %d is %d: its tokenizer has %d", i, id, vocab)
		}
	}
	return nil
}

// fits returns an error unless the tokens belong to a tokenizer. name is what the user calls it.
func (t *tokenFile) fits(with Tokenizer, name string) error {
	if t.tokenizer == with.Name() && t.vocab == with.VocabSize() {
		return nil
	}
	if strings.TrimSuffix(t.tokenizer, bpe.Taken) == strings.TrimSuffix(with.Name(), bpe.Taken) {
		return fmt.Errorf("token file %s was made by %s, not %s: add special_tokens or leave it out, or tokenize the text again", t.path, t.tokenizer, with.Name())
	}
	advice := "leave --tokenizer out, which uses the one in the file"
	if t.inName() {
		advice = "give --tokenizer " + t.tokenizer
	} else if t.carried == "" {
		advice = "give --tokenizer the file that it was made with"
	}
	return fmt.Errorf("token file %s was made with another tokenizer than %s: its has %d tokens, this one %d: %s, or tokenize the text again",
		t.path, cmp.Or(name, with.Name()), t.vocab, with.VocabSize(), advice)
}

// inName reports whether the name of the tokenizer suffices to open it.
func (t *tokenFile) inName() bool { return !TokenizerInFile(t.tokenizer) }

// TokenizerOf returns the tokenizer of the first token file at paths, as a name for
// [OpenTokenizer]: that of a built-in tokenizer, or the path of the token file if it carries its
// tokenizer. It is empty if there is no token file or if it carries none.
func TokenizerOf(paths []string) (name string, err error) {
	found := errors.New("found")
	err = eachSource(paths, Options{}, func(s source) error {
		t, err := s.tokens()
		if err != nil || t == nil {
			return err
		}
		switch {
		case t.inName():
			name = t.tokenizer
		case t.carried != "":
			name = t.path
		}
		return cmp.Or(t.unmap(), found)
	})
	if err == found {
		err = nil
	}
	return name, err
}

// carriedTokenizer opens the tokenizer in a token file. ok is false if path is no Arrow file.
func carriedTokenizer(path string) (t Tokenizer, ok bool, err error) {
	in, err := openFile(path)
	if err != nil {
		return nil, false, err
	}
	magic := make([]byte, len(arrowipc.Magic))
	_, err = io.ReadFull(in, magic)
	if err := in.Close(); err != nil || string(magic) != arrowipc.Magic {
		return nil, false, err
	}
	if err != nil {
		return nil, false, nil
	}
	file, err := openTokens(path)
	if err != nil {
		return nil, true, err
	}
	switch {
	case file.inName():
		t, err = OpenTokenizer(file.tokenizer)
	case file.carried == "":
		err = fmt.Errorf("token file %s does not carry its tokenizer: give the tokenizer.json that it was made with", path)
	default:
		t, err = opened(bpe.Parse([]byte(file.carried)))
		t, err = endedBy(t, file.end, "end_token of "+filepath.Base(path), err)
		if err == nil && strings.HasSuffix(file.tokenizer, bpe.Taken) {
			err = TakeSpecial(t)
		}
	}
	return t, true, errors.Join(err, file.unmap())
}
