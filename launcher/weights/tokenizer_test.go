package weights

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/datasets"
)

// The tokenizer of a run goes with its weights when they are converted, and is found again.
func TestTokenizer(t *testing.T) {
	dir, _ := run(t, 1)
	s := opened(t, dir)
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
	text := []byte("a b\x00\xff ü 1234")
	if ids := byName.Encode(text); !slices.Equal(ids, datasets.Bytes{}.Encode(text)) {
		t.Errorf("%q is %v", text, ids)
	}

	// The library finds the token that ends documents.
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		var file struct {
			EOS string `json:"eos_token"`
			Pad string `json:"pad_token"`
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(to, name)), &file); err != nil || file.EOS != "Ā" || file.Pad != file.EOS {
			t.Errorf("%s has %+v (%v)", name, file, err)
		}
	}
	if token, ok := spelling([]byte(`{"added_tokens":[{"id":7,"content":"<|end|>"}],"model":{"vocab":{"x":7}}}`), 7); !ok || token != "<|end|>" {
		t.Errorf("an added token is %q (%t)", token, ok)
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
	_, err = ReadTokenizer(t.TempDir())
	refused(t, err, "holds no weights")
}
