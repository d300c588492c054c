package datasets

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	lines := strings.Repeat(`{"text":"aabb"}`+"\n", 3) + `{"text":"a"}` + "\n" + `{"text":""}` + "\n" + `{"text":"` + strings.Repeat("b", 900) + `"}`
	path := filepath.Join(writeTree(t, map[string]string{"set.jsonl": lines}), "set.jsonl")
	out := filepath.Join(t.TempDir(), "tokens.arrow")
	if _, err := WriteTokens(t.Context(), out, []string{path}, letterPairs{1000}, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	all, err := Inspect(t.Context(), []string{path + "@2", out + "@1"}, letterPairs{1000}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const tokens = 3*2 + 1 + 450 + 5 // each document with its end
	text := Inspection{Source: path, Weight: 2, Tokenizer: "pairs of 1000", Files: 1, Documents: 5, Losses: Losses{Skipped: 1}, Bytes: 913, Tokens: tokens}
	if !reflect.DeepEqual(all[0], text) {
		t.Errorf("%+v, want %+v", all[0], text)
	}
	if got := all[1]; got.Source != out || got.Tokenizer != "pairs of 1000" || got.Documents < 5 || got.Bytes != 913 || got.Tokens < tokens {
		t.Errorf("%+v", got)
	}
	_, err = Inspect(t.Context(), []string{path, out + "@1"}, letterPairs{1000}, Options{})
	wantError(t, err, "has no weight")
}

func TestDocumentStarts(t *testing.T) {
	inputs := []int32{5, 0, 7, 8, 0, 0, 1, 0, 2, 2, 2, 2}
	first := make([]int32, len(inputs))
	DocumentStarts(first, inputs, 4, 0)
	for i, want := range []int32{0, 0, 2, 2, 0, 1, 2, 2, 0, 0, 0, 0} {
		if first[i] != want {
			t.Errorf("token %d begins at %d, want %d", i, first[i], want)
		}
	}
	if id, err := Separator(Bytes{}); id != 0 || err != nil {
		t.Errorf("separator %d, %v", id, err)
	}
}
