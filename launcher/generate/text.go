package generate

import (
	"bytes"
	"unicode/utf8"

	"spmoe/datasets"
)

// text is what a sequence writes: the bytes of its tokens, of which some are held back because the
// next ones may change what they are: a part of a rune, or what may begin a stop text.
type text struct {
	tokenizer datasets.Tokenizer
	stops     []string
	written   []byte
	shown     int // bytes of them
}

// add writes a token and returns what can be shown now. stopped says that a stop text has come; it
// is no part of what was written.
func (t *text) add(token int32) (piece string, stopped bool) {
	from := len(t.written)
	t.written = append(t.written, t.tokenizer.Decode([]int32{token})...)
	if at, ok := t.stop(from); ok {
		t.written = t.written[:at]
		return t.rest(), true
	}
	return t.show(t.settled()), false
}

// stop returns where the first stop text begins that ends behind a place.
func (t *text) stop(from int) (at int, ok bool) {
	at = len(t.written)
	for _, s := range t.stops {
		begin := max(0, from-len(s)+1)
		if i := bytes.Index(t.written[begin:], []byte(s)); i >= 0 && begin+i <= at {
			at, ok = begin+i, true
		}
	}
	return at, ok
}

// settled returns the end of what no further token changes.
func (t *text) settled() int {
	end := len(t.written)
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.written)-t.shown); n > 0; n-- {
			if bytes.HasSuffix(t.written, []byte(s[:n])) {
				end = min(end, len(t.written)-n)
				break
			}
		}
	}
	for i := max(t.shown, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(t.written[i]) && !utf8.FullRune(t.written[i:end]) {
			return i
		}
	}
	return end
}

func (t *text) show(end int) string {
	piece := string(t.written[t.shown:end])
	t.shown = end
	return piece
}

// rest returns what was held back, at the end.
func (t *text) rest() string { return t.show(max(t.shown, len(t.written))) }
