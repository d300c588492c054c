package datasets

// Special tokens that are spelled in text. They are counted. Where the end of a document is
// spelled, text is divided: if it is a line of a text file, or if the tokenizer takes it as a
// token.

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/datasets/bpe"
)

// TakeSpecial makes special tokens that are spelled in text stand for themselves: in training text,
// which the ends of documents then divide, and in prompts. It must be called before anything is
// encoded.
func TakeSpecial(t Tokenizer) error {
	b, ok := t.(*bpe.Tokenizer)
	if !ok {
		return fmt.Errorf("special_tokens: tokenizer %s has no special tokens: leave it out", t.Name())
	}
	b.TakeSpecial = true
	return nil
}

// TakesSpecial reports whether special tokens that are spelled in text stand for themselves.
func TakesSpecial(t Tokenizer) bool {
	b, ok := t.(*bpe.Tokenizer)
	return ok && b.TakeSpecial
}

// plus adds counts.
func plus(a, b map[string]int) map[string]int {
	if len(a) == 0 {
		return b
	}
	a = maps.Clone(a)
	for token, n := range b {
		a[token] += n
	}
	return a
}

// CutSpecial counts the special tokens that are spelled in text; nil: none. If the tokenizer takes
// them, those that end documents cut the text into parts.
func CutSpecial(t Tokenizer, text []byte) (parts [][]byte, special map[string]int) {
	if b, ok := t.(*bpe.Tokenizer); ok {
		return b.Cut(text)
	}
	return [][]byte{text}, nil
}

// SpecialNote says which special tokens are spelled in text, and what becomes of them. It is empty
// without any.
func SpecialNote(t Tokenizer, counts map[string]int) string {
	const most = 3
	var all []string
	for token, n := range counts {
		all = append(all, fmt.Sprintf("%d times %.50s", n, token))
	}
	if slices.Sort(all); len(all) > most {
		all = append(all[:most], "others")
	}
	switch {
	case len(all) == 0:
		return ""
	case TakesSpecial(t):
		return strings.Join(all, ", ") + " in the text: taken as special tokens"
	}
	return strings.Join(all, ", ") + " in the text: encoded as letters; special_tokens takes special tokens as such, in text and in prompts"
}

// divide passes on the documents that a text consists of, with the counts of its special tokens. If
// lines is set, lines that are the end token of the tokenizer, or <|endoftext|> as in most files of
// several texts, end a document.
func (s source) divide(d Document, lines bool, each func(Document) error) error {
	texts, parts := [][]byte{d.Text}, [][]byte(nil)
	if lines {
		texts = cutLines(d.Text, s.tokenizer)
	}
	for _, text := range texts {
		cut, special := CutSpecial(s.tokenizer, text)
		parts, d.special = append(parts, cut...), plus(d.special, special)
	}
	parts = slices.DeleteFunc(parts, func(part []byte) bool { return len(part) == 0 })
	if len(parts) <= 1 {
		d.Text = append(parts, nil)[0]
		return each(d)
	}
	for i, text := range parts {
		part := Document{Name: fmt.Sprintf("%s#%d", d.Name, i+1), Text: text, file: cmp.Or(d.file, d.Name), row: cmp.Or(d.row, i+1)}
		if i == 0 { // what is counted is counted once
			part.nul, part.replaced, part.special = d.nul, d.replaced, d.special
		}
		if err := each(part); err != nil {
			return err
		}
	}
	return nil
}

// cutLines returns the texts between lines that end documents. The line ends around these belong to
// no text.
func cutLines(text []byte, t Tokenizer) (all [][]byte) {
	ends, from, at := []string{bpe.EndOfText}, 0, 0
	if b, ok := t.(*bpe.Tokenizer); ok {
		_, end, _ := b.End()
		ends = append(ends, cmp.Or(end, bpe.EndOfText))
	}
	for line := range bytes.Lines(text) {
		if slices.Contains(ends, string(bytes.TrimRight(line, "\r\n"))) {
			all, from = append(all, bytes.Trim(text[from:at], "\r\n")), at+len(line)
		}
		at += len(line)
	}
	if from == 0 {
		return [][]byte{text}
	}
	return append(all, bytes.Trim(text[from:], "\r\n"))
}
