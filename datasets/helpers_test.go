package datasets

// What several tests share: folders of text, corpora and streams of known content.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeTree makes a folder that holds files, by slash-separated name.
func writeTree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// numbered returns n documents of size bytes each, all different.
func numbered(n, size int) []Document {
	docs := make([]Document, n)
	for i := range docs {
		text := strings.Repeat(fmt.Sprintf("%d,", i), size)[:size]
		docs[i] = Document{Name: fmt.Sprintf("doc%04d", i), Text: []byte(text)}
	}
	return docs
}

// newCorpus makes a corpus of docs.
func newCorpus(docs []Document, skipped int) (*Corpus, error) {
	train, heldOut, err := split(docs)
	if err != nil {
		return nil, err
	}
	return newCorpora(texts{train: train, heldOut: heldOut, losses: Losses{Skipped: skipped}})[0], nil
}

// countingStream holds the ids 0, 1, 2, ..., so that a window shows where it was cut.
func countingStream(tokens int) Stream {
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(i)
	}
	return Stream{wide: ids, fingerprint: fmt.Sprintf("counting to %d", tokens)}
}

// open reads a corpus.
func open(t testing.TB, opts Options, paths ...string) *Corpus {
	t.Helper()
	c, err := readCorpus(paths, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// load loads data, which is released after the test.
func load(t testing.TB, tokenizer Tokenizer, paths ...string) *Data {
	t.Helper()
	d, err := Load(paths, tokenizer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// tokenized writes a token file.
func tokenized(t testing.TB, tokenizer Tokenizer, paths ...string) (string, TokenizeSummary) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "tokens.arrow")
	sum, err := WriteTokens(t.Context(), out, paths, tokenizer, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out, sum
}

// names returns the names of the documents of both sides.
func names(c *Corpus) map[string]string {
	all := make(map[string]string)
	for _, side := range []Split{c.Train, c.HeldOut} {
		for _, d := range side.docs {
			all[d.Name] += string(d.Text)
		}
	}
	return all
}

// wantError fails unless err says all of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// tb is what helpers need of a test, of rapid's too.
type tb interface {
	Helper()
	Fatal(args ...any)
}

// readCorpus reads the text at paths, or the built-in corpus.
func readCorpus(paths []string, opts Options) (*Corpus, error) {
	s, err := sourceAt(paths, opts)
	if err != nil {
		return nil, err
	}
	t, err := s.texts()
	if err != nil {
		return nil, err
	}
	return newCorpora(t)[0], nil
}
