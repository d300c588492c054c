package datasets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets/bpe"
)

// stories returns 60 texts, as a text file with a separator after each and as rows that end with
// it.
func stories(separator string) (texts []string, file, rows string) {
	for i := range 60 {
		text := fmt.Sprintf("Once upon a time, %d bears\n\nlived in %d houses.", i, i*i)
		texts = append(texts, text)
		file += text + separator
		row, _ := json.Marshal(map[string]string{"text": text + separator})
		rows += string(row) + "\n"
	}
	return texts, file, rows
}

// TestStories: 60 stories are 60 documents for training and for token files, in whatever
// way a text file spells the end between them. What stays in the text is counted.
func TestStories(t *testing.T) {
	texts, lines, _ := stories("\n<|endoftext|>\n")
	_, windows, _ := stories("\r\n<|endoftext|>\r\n\r\n")
	_, inline, rows := stories("<|endoftext|>")
	letters := trained(t, t.TempDir(), lines)
	taken := trained(t, t.TempDir(), lines)
	if TakeSpecial(taken) != nil || TakeSpecial(Bytes{}) == nil {
		t.Fatal("a trained tokenizer has special tokens, that of bytes has none")
	}
	all := map[string]int{bpe.EndOfText: 60}
	for _, c := range []struct {
		name, text string
		by         Tokenizer
		rules      Rules
		documents  int
		counted    map[string]int
	}{
		{"a.txt", lines, letters, 0, 60, nil},
		{"a.txt", lines, taken, 0, 60, nil},
		{"a.txt", lines, Bytes{}, 0, 60, nil},
		{"a.txt", windows, letters, 0, 60, nil},
		{"a.txt", lines, letters, TextRules, 1, all},
		{"a.txt", inline, letters, 0, 1, all},
		{"a.txt", inline, taken, 0, 60, all},
		{"a.txt", inline, Bytes{}, 0, 1, nil},
		{"a.jsonl", rows, letters, 0, 60, all},
		{"a.jsonl", rows, taken, 0, 60, all},
		{"a.txt", "<|endoftext|>\nonly one\n<|endoftext|>\n\n<|endoftext|>", letters, 0, 1, nil},
	} {
		what := fmt.Sprintf("%s by %s and rules %d: %.30q", c.name, c.by.Name(), c.rules, c.text)
		path, opts := filepath.Join(writeTree(t, map[string]string{c.name: c.text}), c.name), Options{Rules: c.rules}
		d, err := Load([]string{path}, c.by, opts)
		if err != nil {
			t.Fatal(what, err)
		}
		tokens := filepath.Join(t.TempDir(), "tokens.arrow")
		sum, err := WriteTokens(t.Context(), tokens, []string{path}, c.by, opts, nil)
		if err != nil {
			t.Fatal(what, err)
		}
		file := load(t, c.by, tokens)
		if file.Train.Fingerprint() != d.Train.Fingerprint() || file.Train.Len() != d.Train.Len() || file.HeldOut.Len() != d.HeldOut.Len() {
			t.Errorf("%s: the token file has other tokens than the text", what)
		}
		for by, losses := range map[string]Losses{"training": d.Losses, "token file": sum.Losses} {
			if !reflect.DeepEqual(losses.Special, c.counted) {
				t.Errorf("%s, %s: %v are spelled, want %v", what, by, losses.Special, c.counted)
			}
		}
		if d.Documents != max(c.documents, 2) || sum.Train.Documents+sum.HeldOut.Documents != int64(max(c.documents, 2)) {
			t.Errorf("%s: %d documents in training, %+v: want %d", what, d.Documents, sum, c.documents)
		}
		if got := decoded(d, c.by); c.documents == 60 && c.counted == nil || TakesSpecial(c.by) {
			slices.Sort(texts)
			if slices.Sort(got); !slices.EqualFunc(got, texts, func(a, b string) bool { return a == strings.TrimSpace(b) }) {
				t.Errorf("%s: the documents are %.200q", what, got)
			}
		}
		if note := SpecialNote(c.by, c.counted); c.counted != nil && !strings.HasPrefix(note, "60 times <|endoftext|> in the text: ") || c.counted == nil && note != "" {
			t.Errorf("%s: the note is %q", what, note)
		}
	}
}

// decoded returns the documents of both sides.
func decoded(d *Data, t Tokenizer) (all []string) {
	for _, s := range []Stream{d.Train, d.HeldOut} {
		ids := make([]int32, s.Len())
		s.copyIDs(ids, 0)
		for _, text := range bytes.Split(bytes.TrimSuffix(t.Decode(ids), []byte{separator}), []byte{separator}) {
			all = append(all, strings.ReplaceAll(string(text), "\r\n", "\n"))
		}
	}
	return all
}

// TestTakenTokenizers: a tokenizer that takes special tokens encodes them in text and prompts
// alike, has another name, and is found again in token files.
func TestTakenTokenizers(t *testing.T) {
	for _, name := range []string{"tiktoken:gpt2", "a file"} {
		dir := t.TempDir()
		if name == "a file" {
			trained(t, dir, "abab abab")
			name = dir
		}
		plain, _ := OpenTokenizer(name)
		tok, err := OpenTokenizer(name)
		if err != nil || TakeSpecial(tok) != nil {
			t.Fatal(name, err)
		}
		end := EndOf(tok).ID
		text := []byte("a<|endoftext|>b")
		if got := tok.Encode(text); len(got) != 3 || got[1] != end {
			t.Errorf("%s: %v", name, got)
		}
		if got := plain.Encode(text); len(got) < 6 || slices.Contains(got, end) {
			t.Errorf("%s: %v are letters", name, got)
		}
		tokens, _ := tokenized(t, tok, filepath.Join(writeTree(t, map[string]string{"a.txt": "aba<|endoftext|>bab"}), "a.txt"))
		of, err := TokenizerOf([]string{tokens})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := OpenTokenizer(of); err != nil || again.Name() != tok.Name() || !TakesSpecial(again) {
			t.Errorf("%s: the token file has %v, %v, want %s", name, again, err, tok.Name())
		}
		_, err = Load([]string{tokens}, plain, Options{})
		wantError(t, err, "+special, not ", "add special_tokens or leave it out")
	}
}
