package datasets

// Runs of units of text: of lines, or of words.

import (
	"bytes"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// textRuns divides text into runs of n successive units, one beginning at each unit. A text with
// fewer units is one run.
type textRuns struct {
	n      int
	factor uint64 // of the polynomial in the hashes of the units; odd
	// next returns the first unit of a text that is not empty, and where it ends; nil: it has none
	next func(text []byte) (unit []byte, end int)
}

var (
	lineRuns = textRuns{runLines, 0x9e3779b97f4a7c15, nextLine}
	wordRuns = textRuns{runWords, 0xc2b2ae3d27d4eb4f, nextWord}
)

// eachRun calls yield with the hashes of all runs of lines and words.
func eachRun(text []byte, yield func(hash uint64)) {
	lineRuns.each(text, func(hash uint64, _, _ int) { yield(hash) })
	wordRuns.each(text, func(hash uint64, _, _ int) { yield(hash) })
}

// each calls yield with the hash and the bytes [from, to) of each run, in order.
func (r textRuns) each(text []byte, yield func(hash uint64, from, to int)) {
	var units [max(runLines, runWords)]struct {
		hash uint64
		from int
	}
	oldest := uint64(1) // factor to the power of n
	for range r.n {
		oldest *= r.factor
	}
	hash, count, next, at := uint64(0), 0, 0, 0 // next: the slot of the next unit
	for at < len(text) {
		unit, end := r.next(text[at:])
		if unit == nil {
			break
		}
		slot := &units[next]
		if next++; next == r.n {
			next = 0
		}
		hash = hash*r.factor - slot.hash*oldest
		slot.hash, slot.from = xxh3.Hash(unit), at
		hash += slot.hash
		count, at = count+1, at+end
		if count >= r.n {
			yield(SplitMix64(hash), units[next].from, at)
		}
	}
	if 0 < count && count < r.n {
		yield(SplitMix64(hash), 0, len(text))
	}
}

// count returns the number of units of text.
func (r textRuns) count(text []byte) (n int) {
	for at := 0; at < len(text); {
		unit, end := r.next(text[at:])
		if at += end; unit != nil {
			n++
		}
	}
	return n
}

// nextLine returns a line without the space around it.
func nextLine(text []byte) (line []byte, end int) {
	end = bytes.IndexByte(text, '\n') + 1
	if end == 0 {
		end = len(text)
	}
	if line = bytes.TrimSpace(text[:end]); line == nil {
		line = text[:0]
	}
	return line, end
}

// nextWord skips what is no word and returns the first word, or nil if there is none. A character
// of a script that puts no space between words is a word.
func nextWord(text []byte) (word []byte, end int) {
	from := 0
	for from < len(text) && !inWord[text[from]] {
		from++
	}
	for end = from; end < len(text) && inWord[text[end]]; {
		if text[end] < utf8.RuneSelf {
			end++
			continue
		}
		c, size := utf8.DecodeRune(text[end:])
		if c < firstIdeograph {
			end += size
			continue
		}
		if end == from {
			end += size
		}
		break
	}
	if end == from {
		return nil, len(text)
	}
	return text[from:end], end
}

// firstIdeograph is where the scripts of East Asia begin in Unicode.
const firstIdeograph = 0x2e80

// inWord says which bytes are part of a word: letters, digits, the underscore, and all characters
// beyond ASCII.
var inWord = func() (is [256]bool) {
	for i := range is {
		b := byte(i)
		is[b] = 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '_' || b >= utf8.RuneSelf
	}
	return is
}()
