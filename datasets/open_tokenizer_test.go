package datasets

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/datasets/bpe"
)

// trained trains a small tokenizer, writes it to a folder and returns it.
func trained(t *testing.T, dir, text string) Tokenizer {
	t.Helper()
	tok, err := bpe.Train(t.Context(), slices.Values([][]byte{[]byte(text)}), 300)
	if err != nil {
		t.Fatal(err)
	}
	data, err := tok.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, TokenizerFile), data, 0o666); err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestOpenTokenizer(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	want := trained(t, dir, "abab abab")
	for name, id := range map[string]string{
		"": "bytes", "bytes": "bytes", "tiktoken:gpt2": "tiktoken:r50k_base", dir: want.Name(), filepath.Join(dir, TokenizerFile): want.Name(),
	} {
		if tok, err := OpenTokenizer(name); err != nil || tok.Name() != id {
			t.Errorf("%q: %v, %v, want %s", name, tok, err, id)
		}
	}
	for name, parts := range map[string][]string{
		"tiktoken:x":                  {`no encoding "x"`},
		filepath.Join(dir, "missing"): {"missing", "use bytes, tiktoken:"},
		empty:                         {empty, "use bytes, tiktoken:"},
		"open_tokenizer.go":           {"open_tokenizer.go", "byte 1", "it is no JSON", "tokenizer.json"},
		"testdata/rows.jsonl":         {"rows.jsonl", "data train-tokenizer"},
		"gpt2":                        {"did you mean tiktoken:gpt2?"},
		"cl100k_base":                 {"did you mean tiktoken:cl100k_base?"},
	} {
		_, err := OpenTokenizer(name)
		wantError(t, err, parts...)
	}
}

// The files next to a tokenizer.json name the token that ends documents, and the log says where it
// was found. A run keeps it in its configuration, and one without it keeps what special tokens say.
func TestEndToken(t *testing.T) {
	dir := t.TempDir()
	tok := trained(t, dir, "abab abab")
	text, err := TokenizerJSON(tok)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, TokenizerFile)
	const special = `{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`
	rest := bytes.SplitN(text, []byte(`"added_tokens": [`), 2)
	changed := slices.Concat(rest[0], fmt.Appendf(nil, `"added_tokens": [`+special+","+special+",", 300, "[EOS]", 301, "<|bos|>"), rest[1])
	if err := os.WriteFile(name, changed, 0o666); err != nil {
		t.Fatal(err)
	}
	byName := End{ID: EndOf(tok).ID, Text: bpe.EndOfText, From: "by its name"}
	for _, c := range []struct {
		config, special, end string
		want                 End
		err                  string
	}{
		{"", "", "", byName, ""},
		{`{"eos_token":null}`, "", "", byName, ""},
		{`{"eos_token":"[EOS]","bos_token":"<|bos|>"}`, "", "", End{300, "[EOS]", "eos_token of tokenizer_config.json", "[EOS]"}, ""},
		{`{"eos_token":{"__type":"AddedToken","content":"[EOS]"}}`, "", "", End{300, "[EOS]", "eos_token of tokenizer_config.json", "[EOS]"}, ""},
		{`{"bos_token":"<|bos|>"}`, "", "", End{301, "<|bos|>", "bos_token of tokenizer_config.json", "<|bos|>"}, ""},
		{`{}`, `{"eos_token":"[EOS]"}`, "", End{300, "[EOS]", "eos_token of special_tokens_map.json", "[EOS]"}, ""},
		{`{"eos_token":"[EOS]"}`, "", "<|bos|>", End{301, "<|bos|>", "end_token of the configuration", "<|bos|>"}, ""},
		{`{"eos_token":"[EOS]"}`, "", "[EOS]", End{300, "[EOS]", "eos_token of tokenizer_config.json", "[EOS]"}, ""},
		{`{`, "", "[EOS]", End{300, "[EOS]", "end_token of the configuration", "[EOS]"}, ""},
		{`{"eos_token":"</s>"}`, "", "", End{}, `no token "</s>" to end documents with (eos_token of tokenizer_config.json): name one that it has with end_token`},
		{`{`, "", "", End{}, "tokenizer_config.json: unexpected end"},
	} {
		for file, text := range map[string]string{"tokenizer_config.json": c.config, "special_tokens_map.json": c.special} {
			if path := filepath.Join(dir, file); text == "" {
				os.Remove(path)
			} else if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, err := NewTokenizer(name, c.end)
		if c.err != "" {
			wantError(t, err, c.err)
		} else if err != nil || EndOf(got) != c.want {
			t.Errorf("%+v: %+v, %v", c, EndOf(got), err)
		} else if again, err := RunTokenizer(dir, "gone", c.want.Setting); err != nil || again.Name() != got.Name() || EndOf(again).ID != c.want.ID {
			t.Errorf("%+v: a run opens %v, %v", c, again, err)
		}
	}
	// A run of an earlier version does not read them.
	if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"eos_token":"[EOS]"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if old, err := RunTokenizer(t.TempDir(), name, ""); err != nil || EndOf(old) != byName {
		t.Errorf("an old run: %+v, %v", EndOf(old), err)
	}
	if end := EndOf(Bytes{}); end.ID != 0 || end.Text != "the byte NUL" || end.From != "" {
		t.Errorf("bytes: %+v", end)
	}
	_, err = NewTokenizer("bytes", "x")
	wantError(t, err, "tokenizer bytes ends documents in its own way")
	// A token file carries it.
	own, err := NewTokenizer(name, "[EOS]")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens.arrow")
	if _, err := WriteTokens(t.Context(), tokens, []string{"testdata/rows.jsonl"}, own, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	if carried, err := OpenTokenizer(tokens); err != nil || carried.Name() != own.Name() || EndOf(carried).Setting != "[EOS]" {
		t.Errorf("a token file carries %+v, %v", carried, err)
	}
}

// A run's own copy comes before the file that its configuration names, which may have changed or be
// gone.
func TestRunTokenizer(t *testing.T) {
	run, other, empty := t.TempDir(), t.TempDir(), t.TempDir()
	own, changed := trained(t, run, "abab abab"), trained(t, other, "cdcd cdcd")
	for _, c := range []struct{ folder, name, want string }{
		{run, other, own.Name()}, {run, filepath.Join(empty, "gone"), own.Name()}, {empty, other, changed.Name()},
		{run, "bytes", "bytes"}, {run, "", "bytes"}, {run, "tiktoken:gpt2", "tiktoken:r50k_base"},
	} {
		if tok, err := RunTokenizer(c.folder, c.name, ""); err != nil || tok.Name() != c.want {
			t.Errorf("%+v: %v, %v", c, tok, err)
		}
	}
	_, err := RunTokenizer(empty, filepath.Join(empty, "gone"), "")
	wantError(t, err, "gone")
	for _, c := range []struct {
		name string
		tok  Tokenizer
		file bool
	}{{"bytes", Bytes{}, false}, {other, changed, true}} {
		if data, err := TokenizerCopy(c.tok, c.name); err != nil || (data != nil) != c.file {
			t.Errorf("a run keeps %d bytes of %s, %v", len(data), c.name, err)
		}
	}
}

// Every tokenizer can be written for Hugging Face, and gives the same ids when it is read again.
func TestTokenizerJSON(t *testing.T) {
	text := []byte("abab 東京 12\x00\xff it's")
	for _, name := range []string{"bytes", "tiktoken:gpt2"} {
		tok, err := OpenTokenizer(name)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), TokenizerFile)
		data, err := TokenizerJSON(tok)
		if err != nil || os.WriteFile(path, data, 0o666) != nil {
			t.Fatal(err)
		}
		again, err := OpenTokenizer(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := again.Encode(text), tok.Encode(text); !slices.Equal(got, want) {
			t.Errorf("%s: %v, as a file %v", name, want, got)
		}
	}
	_, err := TokenizerJSON(letterPairs{1000})
	wantError(t, err, "pairs of 1000 has no tokenizer.json")
}
