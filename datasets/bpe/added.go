package bpe

// Added tokens: texts with one id each, regardless of the text around them.

import (
	"bytes"
	"cmp"
	"slices"
	"unicode"
)

// addedToken is an entry of added_tokens. Special ones control a model and are not part of ordinary
// text.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"` // includes the white space before it
	RStrip     bool   `json:"rstrip"` // includes the white space after it
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedTokens finds added tokens by their first byte.
type addedTokens [256][]addedToken

func newAddedTokens(tokens []addedToken) *addedTokens {
	a := new(addedTokens)
	for _, t := range tokens {
		a[t.Content[0]] = append(a[t.Content[0]], t)
	}
	for _, same := range a {
		slices.SortStableFunc(same, func(x, y addedToken) int { return cmp.Compare(len(y.Content), len(x.Content)) })
	}
	return a
}

// find returns the first added token in text, the longest of those that begin there, and its range
// of text. It skips special ones unless special is set. If there is none, both ends are len(text).
func (a *addedTokens) find(text []byte, special bool) (token addedToken, start, end int) {
	for i, b := range text {
		for _, t := range a[b] {
			if t.Special && !special || !bytes.HasPrefix(text[i:], []byte(t.Content)) {
				continue
			}
			start, end = i, i+len(t.Content)
			if t.LStrip {
				start = len(bytes.TrimRightFunc(text[:start], unicode.IsSpace))
			}
			if t.RStrip {
				end = len(text) - len(bytes.TrimLeftFunc(text[end:], unicode.IsSpace))
			}
			return t, start, end
		}
	}
	return addedToken{}, len(text), len(text)
}
