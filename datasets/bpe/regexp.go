package bpe

// Patterns of other tokenizers, matched by Go's regexp: each match takes linear time, for any
// pattern.

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// beforeWord is the only look-ahead that tokenizers use: white space whose last character is left
// to the following word.
const beforeWord = `\s+(?!\S)`

// maxPattern is far above the length of any tokenizer's pattern, in bytes.
const maxPattern = 16 << 10

// compile returns the matcher of a pattern in the syntax of Hugging Face's tokenizers, with Unicode
// classes. White space at its end may be left to a word by [beforeWord], as an alternative of the
// whole pattern. It returns an error for other look-around, back-references, most
// possessive quantifiers, and patterns that depend on the characters before a match.
func compile(pattern string) (matcher, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes: expected at most %d", len(pattern), maxPattern)
	}
	if m := byHand(strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern)); m != nil {
		return m, nil
	}
	return compileAny(pattern)
}

// greedy replaces the possessive quantifiers of GPT-4's pattern by greedy ones. They match the
// same: what they would give back cannot begin a letter, or nothing needs it.
var greedy = strings.NewReplacer(`[^\r\n\p{L}\p{N}]?+\p{L}`, `[^\r\n\p{L}\p{N}]?\p{L}`, `[^\s\p{L}\p{N}]++[\r\n]*`, `[^\s\p{L}\p{N}]+[\r\n]*`)

// compileAny is compile with Go's regexp for all patterns.
func compileAny(pattern string) (matcher, error) {
	pattern = greedy.Replace(pattern)
	alternatives := strings.Split(pattern, "|")
	at := slices.Index(alternatives, beforeWord)
	if at < 0 {
		re, _, err := compileUnicode(pattern)
		if err != nil {
			return nil, err
		}
		return plainMatcher(re), nil
	}
	alternatives[at] = `(?P<before>\s+)`
	all, tree, err := compileUnicode(strings.Join(alternatives, "|"))
	if err != nil {
		return nil, err
	}
	isBefore := func(re *syntax.Regexp) bool { return re.Op == syntax.OpCapture && re.Name == "before" }
	if !isBefore(tree) && !(tree.Op == syntax.OpAlternate && slices.ContainsFunc(tree.Sub, isBefore)) {
		return nil, fmt.Errorf("pattern %q: %s inside a group is not supported", pattern, beforeWord)
	}
	others, _, err := compileUnicode(strings.Join(slices.Delete(alternatives, at, at+1), "|"))
	if err != nil {
		return nil, err
	}
	return lookingAhead(all, regexp.MustCompile(`\A(?:`+others.String()+`)`)), nil
}

func plainMatcher(re *regexp.Regexp) matcher {
	return func(text []byte) (int, int) {
		for from := 0; from < len(text); {
			found := re.FindIndex(text[from:])
			if found == nil {
				break
			}
			if found[1] > found[0] {
				return from + found[0], from + found[1]
			}
			_, n := utf8.DecodeRune(text[from+found[0]:])
			from += found[0] + max(n, 1)
		}
		return len(text), len(text)
	}
}

// lookingAhead matches all, in which a group holds the white space that [beforeWord] stands for.
// others is the pattern without it, at the beginning of a text. It is tried if the white space is
// not left to a word.
func lookingAhead(all, others *regexp.Regexp) matcher {
	group := 2 * all.SubexpIndex("before")
	return func(text []byte) (int, int) {
		for from := 0; from < len(text); {
			found := all.FindSubmatchIndex(text[from:])
			if found == nil {
				break
			}
			start, end := from+found[0], from+found[1]
			_, size := utf8.DecodeRune(text[start:])
			if end > start && (found[group] < 0 || end == len(text)) {
				return start, end
			}
			if end > start {
				if _, last := utf8.DecodeLastRune(text[start:end]); end-last > start {
					return start, end - last
				}
				if found := others.FindIndex(text[start:]); found != nil && found[1] > 0 {
					return start, start + found[1]
				}
			}
			from = start + max(size, 1)
		}
		return len(text), len(text)
	}
}

// unicodeClasses are the classes that Go's regexp restricts to ASCII, as they are inside a set.
var unicodeClasses = map[byte]string{
	's': `\t\n\v\f\r\x{85}\p{Z}`,
	'd': `\p{Nd}`,
	'w': `\p{L}\p{M}\p{Nd}\p{Pc}`,
}

// compileUnicode compiles a pattern in which \s, \d and \w, and outside of sets their complements,
// cover all of Unicode. Sets inside sets and their intersection && are not supported.
func compileUnicode(pattern string) (*regexp.Regexp, *syntax.Regexp, error) {
	var b strings.Builder
	b.WriteString("(?m)")
	opened := -1 // where the set around i begins
	for i := 0; i < len(pattern); i++ {
		switch c, inSet := pattern[i], opened >= 0; {
		case c == '\\' && i+1 < len(pattern):
			i++
			class, opposite := unicodeClasses[pattern[i]], unicodeClasses[pattern[i]|0x20]
			switch {
			case class != "" && inSet:
				b.WriteString(class)
			case class != "":
				b.WriteString("[" + class + "]")
			case opposite != "" && inSet:
				return nil, nil, fmt.Errorf("pattern %q is not supported: it has \\%c in a set", pattern, pattern[i])
			case opposite != "":
				b.WriteString("[^" + opposite + "]")
			default:
				b.WriteString(pattern[i-1 : i+1])
			}
		case inSet && (c == '[' || strings.HasPrefix(pattern[i:], "&&")):
			return nil, nil, fmt.Errorf("pattern %q is not supported: it has a set in a set, or &&", pattern)
		case c == '[':
			opened = i
			b.WriteByte(c)
		case c == ']' && i > opened+1 && pattern[opened+1:i] != "^": // at the beginning it is an item
			opened = -1
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	tree, err := syntax.Parse(b.String(), syntax.Perl)
	if err != nil {
		return nil, nil, fmt.Errorf("pattern %q is not supported: %w", pattern, err)
	}
	if looksBehind(tree) {
		return nil, nil, fmt.Errorf(`pattern %q asks for what is before a match (^, \A, \b or \B): not supported`, pattern)
	}
	re, err := regexp.Compile(b.String())
	return re, tree, err
}

// looksBehind reports whether a match of re depends on the text before it.
func looksBehind(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	for _, sub := range re.Sub {
		if looksBehind(sub) {
			return true
		}
	}
	return false
}

// literal returns the matcher of a text.
func literal(text string) matcher {
	return func(in []byte) (int, int) {
		at := bytes.Index(in, []byte(text))
		if at < 0 {
			return len(in), len(in)
		}
		return at, at + len(text)
	}
}
