package weights

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
)

// The tokenizer of a run goes with its weights when they are converted, and is found again.
func TestTokenizer(t *testing.T) {
	dir, _ := run(t, 1)
	s := opened(t, dir)
	if got, err := s.Tokenizer(); err != nil || got.Name() != (datasets.Bytes{}).Name() {
		t.Errorf("%v (%v)", got, err)
	}
	if of, err := ReadTokenizer(dir); err != nil || of.Name != "" {
		t.Errorf("the name is %q (%v)", of.Name, err)
	}
	to := filepath.Join(t.TempDir(), "to")
	if _, err := s.Convert(t.Context(), to, Options{}); err != nil {
		t.Fatal(err)
	}
	of, err := ReadTokenizer(to)
	if err != nil || of.Name != filepath.Join(to, "tokenizer.json") {
		t.Errorf("the name is %q (%v)", of.Name, err)
	}
	byName, err := datasets.OpenTokenizer(of.Name)
	if err != nil {
		t.Fatal(err)
	}
	own, err := opened(t, to).Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("a b\x00\xff ü 1234")
	for _, got := range []datasets.Tokenizer{byName, own} {
		if ids := got.Encode(text); !slices.Equal(ids, datasets.Bytes{}.Encode(text)) {
			t.Errorf("%q is %v", text, ids)
		}
	}

	// A run whose tokenizer is a file has it in its folder, or in that of the checkpoint.
	for _, at := range []string{"", "step-00000007"} {
		dir, _ := run(t, 1)
		file := filepath.Join(dir, at, "tokenizer.json")
		writeFile(t, file, readFile(t, filepath.Join(to, "tokenizer.json")))
		if of, err := ReadTokenizer(dir); err != nil || of.Name != file {
			t.Errorf("the name is %q (%v), want %q", of.Name, err, file)
		}
	}

	if of, err := ReadTokenizer(reference); err != nil || of.Name != "" {
		t.Errorf("the name is %q (%v)", of.Name, err)
	}
	if _, err := opened(t, reference).Tokenizer(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), reference) {
		t.Errorf("error %v", err)
	}
	_, err = ReadTokenizer(t.TempDir())
	refused(t, err, "holds no weights")
}
