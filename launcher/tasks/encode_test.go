package tasks

import (
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
)

func TestRequest(t *testing.T) {
	bytes := func(text string) []int32 { return datasets.Bytes{}.Encode([]byte(text)) }
	const kite, drum, bare, drums, space = 256, 257, 258, 259, 260
	for _, c := range []struct {
		name, begin, context, continuation string
		length                             int
		want                               request
	}{
		{"a word with its space", "", "a", " kite", 8, request{[]int32{'a', kite}, 1, false}},
		{"the space of the context moves", "", "a ", "kite", 8, request{[]int32{'a', kite}, 1, false}},
		{"white space of any kind moves", "", "a\n ", "kite", 8, request{[]int32{'a', '\n', kite}, 2, false}},
		// the text has the tokens a, drums, but that of the context alone is d
		{"a token across the border", "", "d", "rums kite", 16, request{[]int32{'d', kite}, 1, false}},
		{"the beginning is lost", "", "abc", " kite drum", 3, request{[]int32{'b', 'c', kite, drum}, 2, true}},
		{"as long as it may be", "", "bc", " kite drum", 3, request{[]int32{'b', 'c', kite, drum}, 2, false}},
		{"no context", "", "", " kite", 8, request{[]int32{0, kite}, 1, false}},
		{"a beginning", "^", "a", " kite", 8, request{[]int32{'^', 'a', kite}, 1, false}},
		{"a beginning alone", "^", "", " kite", 8, request{[]int32{'^', kite}, 1, false}},
		{"nothing but the continuation", "", "abc", " kite drum", 2, request{[]int32{'c', kite, drum}, 2, true}},
	} {
		e := Encoder{Tokenizer: pieces{}, Begin: c.begin, Context: c.length}
		got, err := e.request(c.context, c.continuation)
		if err != nil || !slices.Equal(got.tokens, c.want.tokens) || got.scored != c.want.scored || got.cut != c.want.cut {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	e := Encoder{Tokenizer: datasets.Bytes{}, Context: 3}
	if _, err := e.request("a", " kite"); err == nil || !strings.Contains(err.Error(), "has 5 tokens, but the model sees 3") {
		t.Errorf("a long continuation: %v", err)
	}
	if r, err := e.request("a", " xy"); err != nil || !slices.Equal(r.tokens, bytes("a xy")) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := (&Encoder{Tokenizer: pieces{}, Context: 8}).request("drum", "s"); err == nil || !strings.Contains(err.Error(), "adds no token") {
		t.Errorf("a continuation within a token: %v", err)
	}
}
