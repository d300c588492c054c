package generate

import (
	"bytes"
	"unicode/utf8"

	"spmoe/datasets"
)

// text is the text of a sequence: the bytes of its tokens. Some bytes are held back because the
// next tokens may change their meaning: part of a character, or the possible beginning of a stop
// text.
type text struct {
	tokenizer datasets.Tokenizer
	stops     []string
	written   []byte
	shown     int // bytes already returned
}

// add appends a token and returns what can be shown now. stopped says that a stop text has
// occurred, which is not part of the text.
func (t *text) add(token int32) (piece string, stopped bool) {
	from := len(t.written)
	t.written = append(t.written, t.tokenizer.Decode([]int32{token})...)
	if at, ok := t.stop(from); ok {
		t.written = t.written[:at]
		return t.rest(), true
	}
	return t.show(t.settled()), false
}

// stop returns the position of the first stop text that ends after from.
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

// settled returns the end of the bytes that no further token changes.
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
