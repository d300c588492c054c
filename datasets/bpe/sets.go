package bpe

// Sets of characters in patterns, as Oniguruma has them, the engine of Hugging Face's tokenizers:
// sets inside sets, and the intersection &&.

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// set is a set of characters: pairs of the first and the last of each range, in order.
type set []rune

// mostDepth is the maximum nesting of sets.
const mostDepth = 16

// parseSet parses a set after its opening bracket, at pattern[i]. end is the position of the
// closing one. && binds less than the union of what stands side by side.
func parseSet(pattern string, i, depth int) (s set, end int, err error) {
	if depth > mostDepth {
		return nil, 0, fmt.Errorf("sets are nested deeper than %d", mostDepth)
	}
	negated := i < len(pattern) && pattern[i] == '^'
	if negated {
		i++
	}
	all, found := set{0, unicode.MaxRune}, set(nil)
	items := "" // characters, ranges and classes that Go's regexp knows
	flush := func() error {
		if items == "" {
			return nil
		}
		tree, err := syntax.Parse("(?s)["+items+"]", syntax.Perl)
		if err != nil {
			return fmt.Errorf("a set is not supported: %w", err)
		}
		found, items = found.union(runes(tree)), ""
		return nil
	}
	for first := true; i < len(pattern); first = false {
		switch c := pattern[i]; {
		case c == ']' && first:
			items += `\]`
			i++
		case c == ']':
			if err := flush(); err != nil {
				return nil, 0, err
			}
			if s = all.intersect(found); negated {
				s = s.complement()
			}
			return s, i, nil
		case strings.HasPrefix(pattern[i:], "&&"):
			if err := flush(); err != nil {
				return nil, 0, err
			}
			all, found = all.intersect(found), nil
			i += 2
		case strings.HasPrefix(pattern[i:], "[:"):
			return nil, 0, fmt.Errorf("class %.20q is not supported: write \\p{...}", pattern[i:])
		case c == '[':
			inner, end, err := parseSet(pattern, i+1, depth+1)
			if err == nil {
				err = flush()
			}
			if err != nil {
				return nil, 0, err
			}
			found, i = found.union(inner), end+1
		case c == '\\' && i+1 < len(pattern):
			class, opposite := unicodeClasses[pattern[i+1]], unicodeClasses[pattern[i+1]|0x20]
			switch {
			case class != "":
				items += class
			case opposite != "":
				tree, err := syntax.Parse("["+opposite+"]", syntax.Perl)
				if err != nil {
					return nil, 0, err
				}
				found = found.union(runes(tree).complement())
			default:
				items += pattern[i : i+2]
			}
			i += 2
		case c == '^':
			items += `\^`
			i++
		default:
			items += pattern[i : i+1]
			i++
		}
	}
	return nil, 0, errors.New("missing closing ]")
}

// runes returns the characters that a parsed set matches.
func runes(tree *syntax.Regexp) set {
	switch tree.Op {
	case syntax.OpCharClass:
		return set(tree.Rune)
	case syntax.OpLiteral:
		var s set
		for _, r := range tree.Rune {
			s = s.union(set{r, r})
			if tree.Flags&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					s = s.union(set{f, f})
				}
			}
		}
		return s
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return set{0, unicode.MaxRune}
	}
	return nil // no character
}

// union returns the characters of either set.
func (s set) union(t set) set {
	type span struct{ lo, hi rune }
	var all []span
	for _, part := range []set{s, t} {
		for i := 0; i < len(part); i += 2 {
			all = append(all, span{part[i], part[i+1]})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return int(a.lo - b.lo) })
	var u set
	for _, p := range all {
		if n := len(u); n > 0 && p.lo <= u[n-1]+1 {
			u[n-1] = max(u[n-1], p.hi)
		} else {
			u = append(u, p.lo, p.hi)
		}
	}
	return u
}

// complement returns all other characters.
func (s set) complement() set {
	var c set
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			c = append(c, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		c = append(c, next, unicode.MaxRune)
	}
	return c
}

func (s set) intersect(t set) set { return s.complement().union(t.complement()).complement() }

// write writes the set for Go's regexp.
func (s set) write(b *strings.Builder) {
	if len(s) == 0 {
		b.WriteString(`[^\x00-\x{10FFFF}]`)
		return
	}
	b.WriteByte('[')
	for i := 0; i < len(s); i += 2 {
		fmt.Fprintf(b, `\x{%X}-\x{%X}`, s[i], s[i+1])
	}
	b.WriteByte(']')
}
