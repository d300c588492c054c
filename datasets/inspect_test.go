package datasets

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	lines := strings.Repeat(`{"text":"aabb"}`+"\n", 3) + `{"text":"a"}` + "\n" + `{"text":""}` + "\n" + `{"text":"` + strings.Repeat("b", 900) + `"}`
	path := filepath.Join(writeTree(t, map[string]string{"set.jsonl": lines}), "set.jsonl")
	all, err := Inspect(t.Context(), []string{path + "@2"}, letterPairs{1000}, Options{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	one := all[0]
	if one.Source != path || one.Weight != 2 || one.Documents != 5 || one.Skipped != 1 || one.Bytes != 913 || one.Duplicates != 2 || one.Unit != "bytes" {
		t.Errorf("%+v", one)
	}
	if want := int64(3*2 + 1 + 450 + 5); one.Tokens != want || math.Abs(one.BytesPerToken-913/float64(want)) > 1e-9 { // each document with its end
		t.Errorf("%d tokens of %v bytes, want %d", one.Tokens, one.BytesPerToken, want)
	}
	if want := (Quantiles{1, 1, 4, 900, 900, 900}); one.Lengths != want {
		t.Errorf("lengths %+v, want %+v", one.Lengths, want)
	}
	if one.HeldOut < 0.01 || one.HeldOut > 0.02 {
		t.Errorf("%v is held out", one.HeldOut)
	}
	if len(one.Samples) != 2 || !strings.HasPrefix(one.Samples[0].Name, "set.jsonl#") || len(one.Samples[0].Text) > sampleBytes {
		t.Errorf("%+v", one.Samples)
	}
	if _, err := json.Marshal(all); err != nil {
		t.Error(err)
	}
	out := filepath.Join(t.TempDir(), "tokens.arrow")
	if _, err := WriteTokens(t.Context(), out, []string{path}, letterPairs{1000}, Options{}, nil); err != nil {
		t.Fatal(err)
	}
	all, err = Inspect(t.Context(), []string{out}, letterPairs{1000}, Options{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	tokens := all[0]
	if tokens.Unit != "tokens" || tokens.Bytes != 913 || tokens.Documents < 5 || tokens.Duplicates != 2 || tokens.Lengths.Min != 2 || tokens.Tokenizer != "pairs of 1000" {
		t.Errorf("%+v", tokens)
	}
	found := false
	for _, s := range tokens.Samples {
		found = found || s.Text == "aabb"
	}
	if !found {
		t.Errorf("no sample is a document: %+v", tokens.Samples)
	}
	_, err = Inspect(t.Context(), []string{path, out + "@1"}, letterPairs{1000}, Options{}, 1)
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
