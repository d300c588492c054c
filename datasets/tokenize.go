package datasets

// Writing a token file. The text is read three times: to divide it, for the validation text, and to
// tokenize the training text. That is never in memory as a whole.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/zeebo/xxh3"

	"spmoe/datasets/arrowipc"
)

// TokenizeProgress is called with the progress of writing a token file: "reading" or "tokenizing",
// and the bytes of text.
type TokenizeProgress func(stage string, bytes int64)

// TokenizeSummary describes a token file.
type TokenizeSummary struct {
	Train, HeldOut Side
	Losses
}

// Side is one side of a token file.
type Side struct{ Documents, Bytes, Tokens int64 }

// WriteTokens tokenizes the text at paths, as [Load] accepts them, or the built-in corpus if there
// are none. It writes a token file that [Load] reads: the same streams, with the same fingerprints,
// as the text itself. It takes 24 bytes of memory per document, the validation text with an index
// of it, and a fixed amount. While it writes, it takes twice the size of the file on disk.
//
// The file appears complete or not at all, and an existing file is not replaced. progress, if not
// nil, is called often.
func WriteTokens(ctx context.Context, path string, paths []string, t Tokenizer, opts Options, progress TokenizeProgress) (sum TokenizeSummary, err error) {
	if _, err := os.Lstat(path); err == nil {
		return sum, fmt.Errorf("%s exists: remove it, or give another --out", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return sum, err
	}
	opts.tokenizer = t
	s, err := openSource(paths, opts)
	if err != nil {
		return sum, err
	}
	if progress == nil {
		progress = func(string, int64) {}
	}
	w, err := newTokenWriter(filepath.Dir(path), t)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	heldOut, losses, err := s.divided(ctx, progress, func(d Document) error { return w.add(0, d) })
	for _, h := range heldOut {
		err = errors.Join(err, w.add(1, h))
	}
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		return sum, err
	}
	sum = TokenizeSummary{w.sides[0].Side, w.sides[1].Side, losses}
	return sum, w.write(path)
}

// scan reads all documents and divides them.
func (s source) scan(ctx context.Context, progress TokenizeProgress) (sizes []int64, sides division, losses Losses, err error) {
	var hashes []uint64
	done := int64(0)
	losses, err = s.each(ctx, func(d Document) error {
		sizes, hashes = append(sizes, int64(len(d.Text))), append(hashes, xxh3.Hash(d.Text))
		done += int64(len(d.Text))
		progress("reading", done)
		return nil
	})
	if err == nil && len(sizes) == 0 {
		err = s.noText(losses)
	}
	if err == nil {
		sides, err = divide(sizes, hashes)
	}
	return sizes, sides, losses, err
}

// tokenWriter collects the tokens of both sides in files without names.
type tokenWriter struct {
	tokenizer Tokenizer
	width     int
	sides     [2]*sideWriter
	texts     [][]byte // to be encoded, each with its NUL
	of        []int    // their sides
	pending   int      // bytes
}

type sideWriter struct {
	Side
	identity hash.Hash
	offsets  []int64 // where documents end, and the next ones begin
	ids      *bufio.Writer
	file     *os.File // of ids
	encode   []byte
}

func newTokenWriter(dir string, t Tokenizer) (w *tokenWriter, err error) {
	w = &tokenWriter{tokenizer: t, width: 4}
	if t.VocabSize() <= 1<<16 {
		w.width = 2
	}
	for i := range w.sides {
		s := &sideWriter{identity: sha256.New(), offsets: []int64{0}}
		if s.file, err = os.CreateTemp(dir, ".tokens-*"); err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.sides[i] = s
		// Where the system allows it, an open file has no name, so that a crash leaves none.
		// Elsewhere close removes it.
		_ = os.Remove(s.file.Name())
		s.ids = bufio.NewWriterSize(s.file, 1<<20)
	}
	return w, nil
}

// add adds a document to a side.
func (w *tokenWriter) add(side int, d Document) error {
	s := w.sides[side]
	s.Documents++
	s.Bytes += int64(len(d.Text))
	writeField(s.identity, d.Text)
	w.texts = append(w.texts, append(bytes.Clone(d.Text), separator))
	w.of = append(w.of, side)
	if w.pending += len(d.Text); w.pending >= encodeAhead {
		return w.flush()
	}
	return nil
}

// flush encodes the collected documents.
func (w *tokenWriter) flush() error {
	for i, ids := range encodeAll(w.tokenizer, w.texts) {
		s := w.sides[w.of[i]]
		s.encode = s.encode[:0]
		for _, id := range ids {
			if w.width == 2 {
				s.encode = binary.LittleEndian.AppendUint16(s.encode, uint16(id))
			} else {
				s.encode = binary.LittleEndian.AppendUint32(s.encode, uint32(id))
			}
		}
		s.Tokens += int64(len(ids))
		if _, err := s.ids.Write(s.encode); err != nil {
			return err
		}
		s.offsets = append(s.offsets, s.Tokens)
	}
	w.texts, w.of, w.pending = w.texts[:0], w.of[:0], 0
	return nil
}

// mostCarried is the size in bytes up to which a token file carries its tokenizer.json: metadata
// has a limit.
const mostCarried = 15 << 20

// write writes the token file.
func (w *tokenWriter) write(path string) (err error) {
	var parts []arrowipc.Part
	var identities [2]string
	for i, s := range w.sides {
		if err := s.ids.Flush(); err != nil {
			return err
		}
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		parts = append(parts, arrowipc.Part{Offsets: s.offsets, Values: s.file})
		identities[i] = hex.EncodeToString(s.identity.Sum(nil))
	}
	_, train, heldOut := fingerprints(identities[0], identities[1])
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	name := w.tokenizer.Name()
	metadata := []string{
		keyFormat, tokensFormat, keyTokenizer, name, keyVocab, number(int64(w.tokenizer.VocabSize())),
		keyTrain, digest(train, name), keyHeldOut, digest(heldOut, name),
		keyTrainBytes, number(w.sides[0].Bytes), keyHeldOutBytes, number(w.sides[1].Bytes),
	}
	if TokenizerInFile(name) {
		if file, err := TokenizerJSON(w.tokenizer); err == nil && len(file) <= mostCarried {
			metadata = append(metadata, keyFile, string(file))
			if end := EndOf(w.tokenizer).Setting; end != "" {
				metadata = append(metadata, keyEnd, end)
			}
		}
	}
	dir := filepath.Dir(path)
	out, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(".tokens-%016x", rand.Uint64())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = arrowipc.WriteTokens(out, tokensColumn, w.width, metadata, parts)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(out.Name()))
	}
	return nil
}

// close releases the files without names.
func (w *tokenWriter) close() error {
	var all error
	for _, s := range w.sides {
		if s == nil {
			continue
		}
		all = errors.Join(all, s.file.Close())
		if err := os.Remove(s.file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}
