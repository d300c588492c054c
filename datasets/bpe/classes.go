package bpe

// Classes of characters: what the patterns of tokenizers distinguish, with one look-up per
// character.

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is a set of classes. Each character belongs to exactly one class.
type class uint8

const (
	upper    class = 1 << iota // \p{Lu} and \p{Lt}
	lower                      // \p{Ll}
	caseless                   // \p{Lm} and \p{Lo}
	mark                       // \p{M}
	number                     // \p{N}
	punct                      // \p{P} and \p{S}
	space                      // \s: White_Space
	rest                       // control, format, private and unassigned characters

	letter = upper | lower | caseless
)

// members lists the tables of each class except rest. No character is in two of them.
var members = []struct {
	class  class
	tables []*unicode.RangeTable
}{
	{upper, []*unicode.RangeTable{unicode.Lu, unicode.Lt}},
	{lower, []*unicode.RangeTable{unicode.Ll}},
	{caseless, []*unicode.RangeTable{unicode.Lm, unicode.Lo}},
	{mark, []*unicode.RangeTable{unicode.M}},
	{number, []*unicode.RangeTable{unicode.N}},
	{punct, []*unicode.RangeTable{unicode.P, unicode.S}},
	{space, []*unicode.RangeTable{unicode.White_Space}},
}

// classTable holds the classes of the first two planes, which contain nearly all text.
type classTable [1 << 17]class

// classes returns the table. It is built when it is first needed, which takes a millisecond.
var classes = sync.OnceValue(func() *classTable {
	t := new(classTable)
	for r := range t {
		t[r] = rest
	}
	for _, m := range members {
		for _, table := range m.tables {
			for _, span := range table.R16 {
				t.fill(rune(span.Lo), rune(span.Hi), rune(span.Stride), m.class)
			}
			for _, span := range table.R32 {
				t.fill(rune(span.Lo), rune(span.Hi), rune(span.Stride), m.class)
			}
		}
	}
	return t
})

func (t *classTable) fill(lo, hi, stride rune, c class) {
	for r := lo; r <= hi && int(r) < len(t); r += stride {
		t[r] = c
	}
}

// of returns the class of a character.
func (t *classTable) of(r rune) class {
	if int(r) < len(t) {
		return t[r]
	}
	for _, m := range members {
		if unicode.In(r, m.tables...) {
			return m.class
		}
	}
	return rest
}

// at returns the class and the size of the character at text[i:]. Both are 0 at the end of text.
func (t *classTable) at(text []byte, i int) (class, int) {
	if i >= len(text) {
		return 0, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return t[b], 1
	}
	r, n := utf8.DecodeRune(text[i:])
	return t.of(r), n
}

// run returns the end of the run of characters of some classes that begins at text[i:].
func (t *classTable) run(text []byte, i int, of class) int {
	for {
		c, n := t.at(text, i)
		if c&of == 0 {
			return i
		}
		i += n
	}
}
