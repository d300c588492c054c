package datasets

// Special tokens that are spelled in text. They are counted. Where the end of a document is
// spelled, text is divided, if it stands alone in a line of a text file, or if the tokenizer takes
// it for a token.

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"spmoe/datasets/bpe"
)

// speller is a tokenizer with special tokens. As long as it does not take them, their spellings in
// text and in prompts are ordinary text.
type speller interface {
	FindSpecial(text []byte) (token string, start, end int)
	TakeSpecial()
	TakesSpecial() bool
}

// TakeSpecial makes special tokens that are spelled in text stand for themselves: in training text,
// which documents' ends then divide, and in prompts. It must be called before anything is encoded.
// ok is false if the tokenizer has no special tokens.
func TakeSpecial(t Tokenizer) (ok bool) {
	s, ok := t.(speller)
	if ok {
		s.TakeSpecial()
	}
	return ok
}

// TakesSpecial reports whether special tokens that are spelled in text stand for themselves.
func TakesSpecial(t Tokenizer) bool {
	s, ok := t.(speller)
	return ok && s.TakesSpecial()
}

// spelling is a special token in text.
type spelling struct {
	token      string
	start, end int
}

// spellings returns the special tokens in text.
func spellings(t Tokenizer, text []byte) iter.Seq[spelling] {
	return func(yield func(spelling) bool) {
		s, ok := t.(speller)
		for at := 0; ok && at < len(text); {
			token, start, end := s.FindSpecial(text[at:])
			if token == "" || !yield(spelling{token, at + start, at + end}) {
				return
			}
			at += end
		}
	}
}

// CountSpecial returns how often special tokens are spelled in text; nil: never.
func CountSpecial(t Tokenizer, text []byte) (counts map[string]int) {
	for s := range spellings(t, text) {
		counts = plus(counts, map[string]int{s.token: 1})
	}
	return counts
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

// SpecialNote says which special tokens are spelled in text, and what becomes of them. It is empty
// without any.
func SpecialNote(t Tokenizer, counts map[string]int) string {
	const most = 3
	tokens := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	var named []string
	for _, token := range tokens[:min(len(tokens), most)] {
		named = append(named, fmt.Sprintf("%d times %.50s", counts[token], token))
	}
	switch {
	case len(tokens) == 0:
		return ""
	case len(tokens) > most:
		named = append(named, fmt.Sprintf("%d other special tokens", len(tokens)-most))
	}
	what := "encoded as letters; --special-tokens takes special tokens as such, in text and in prompts"
	if TakesSpecial(t) {
		what = "taken as special tokens"
	}
	return fmt.Sprintf("%s in the text: %s", strings.Join(named, ", "), what)
}

// divide passes on the documents that a text consists of, with the counts of its special tokens. If
// lines is set, lines that are the end token of the tokenizer, or <|endoftext|> as in most files of
// several texts, end a document. The line ends around them belong to none.
func (s source) divide(d Document, lines bool, each func(Document) error) error {
	t := s.tokenizer
	if t == nil {
		t = Bytes{}
	}
	end, taken := EndOf(t), TakesSpecial(t)
	texts := [][]byte{d.Text}
	if lines {
		texts = cutLines(d.Text, end)
	}
	var parts [][]byte
	add := func(part []byte) {
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	for _, text := range texts {
		from := 0
		for mark := range spellings(t, text) {
			d.special = plus(d.special, map[string]int{mark.token: 1})
			if taken && mark.token == end.Text {
				add(text[from:mark.start])
				from = mark.end
			}
		}
		add(text[from:])
	}
	if len(parts) == 0 {
		parts = [][]byte{nil}
	}
	for i, text := range parts {
		part := d
		if part.Text = text; len(parts) > 1 {
			part.Name, part.file, part.row = fmt.Sprintf("%s#%d", d.Name, i+1), cmp.Or(d.file, d.Name), cmp.Or(d.row, i+1)
		}
		if i > 0 { // what is counted is counted once
			part.nul, part.replaced, part.special = false, false, nil
		}
		if err := each(part); err != nil {
			return err
		}
	}
	return nil
}

// cutLines returns the texts between the lines that end documents; the whole text if it has none.
func cutLines(text []byte, end End) (all [][]byte) {
	marks := [][]byte{[]byte(bpe.EndOfText)}
	if end.From != "" {
		marks = append(marks, []byte(end.Text))
	}
	is := func(line []byte) bool {
		return slices.ContainsFunc(marks, func(mark []byte) bool { return bytes.Equal(line, mark) })
	}
	if !slices.ContainsFunc(marks, func(mark []byte) bool { return bytes.Contains(text, mark) }) {
		return [][]byte{text}
	}
	from, at := 0, 0
	for line := range bytes.Lines(text) {
		if is(bytes.TrimRight(line, "\r\n")) {
			all, from = append(all, text[from:at]), at+len(line)
		}
		at += len(line)
	}
	if all = append(all, text[from:]); len(all) > 1 {
		for i := range all {
			all[i] = bytes.Trim(all[i], "\r\n")
		}
	}
	return all
}
