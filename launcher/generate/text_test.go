package generate

import (
	"strings"
	"testing"

	"spmoe/datasets"
)

// written feeds bytes to a text, one a token, and returns its pieces.
func written(in string, stops ...string) (pieces []string, all string, stopped bool) {
	t := text{tokenizer: datasets.Bytes{}, stops: stops}
	for i := range len(in) {
		piece, stop := t.add(int32(in[i]))
		pieces = append(pieces, piece)
		if stop {
			return pieces, string(t.written), true
		}
	}
	return append(pieces, t.rest()), string(t.written), false
}

func TestPieces(t *testing.T) {
	for _, c := range []struct {
		in    string
		stops string // separated by |
		want  string // pieces, those that are not empty separated by |
		stop  bool
	}{
		{"abc", "", "a|b|c", false},
		{"aéz", "", "a|é|z", false},
		{"€𝄞", "", "€|𝄞", false},
		{"a\xf0\x9d", "", "a|\xf0\x9d", false},             // half a rune at the end
		{"\xe2a\xff\x80b", "", "\xe2a|\xff|\x80|b", false}, // never a rune
		{"one END two", "END", "o|n|e| ", true},            // no part of it is shown
		{"an ENTER END", "END", "a|n| |ENT|ER| ", true},    // what only began like it is
		{"EEND", "END", "E", true},                         //
		{"aab", "ab", "a", true},                           // a stop within what began like one
		{"abc", "bc|abc", "", true},                        // the first to begin counts
		{"x\ny", "\n", "x", true},                          //
		{"ends in EN", "END", "e|n|d|s| |i|n| |EN", false}, // held back and shown at the end
		{"zé!", "é!", "z", true},                           // a stop of several bytes a rune
		{"zéa", "é!", "z|éa", false},                       //
		{"\xc3END", "END", "\xc3", true},                   // half a rune before a stop
		{"aXbY", "Y|X", "a", true},                         //
		{"aaaaab", "aaab", "a|a", true},                    //
		{strings.Repeat("no", 3), "nonono", "", true},      //
		{"nonon", "nonono", "nonon", false},                //
		{"nonox", "nonono", "nonox", false},                //
	} {
		var stops []string
		if c.stops != "" {
			stops = strings.Split(c.stops, "|")
		}
		pieces, all, stopped := written(c.in, stops...)
		var shown []string
		for _, p := range pieces {
			if p != "" {
				shown = append(shown, p)
			}
		}
		if got := strings.Join(shown, "|"); got != c.want || stopped != c.stop || all != strings.Join(shown, "") {
			t.Errorf("%q until %q: %q, stopped %t, in all %q; want %q, %t", c.in, c.stops, got, stopped, all, c.want, c.stop)
		}
	}
}
