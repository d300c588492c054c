package bpe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var allPatterns = map[string]string{
	"gpt2": gpt2Pattern, "cl100k": cl100kPattern, "qwen": qwenPattern, "o200k": o200kPattern,
	"digit": digitPattern, "digits": digitsPattern, "cjk": cjkPattern, "deepseek": deepseekPattern,
}

// matches returns the ends of the matches of a pattern, in runes, and where each begins.
func matches(m matcher, text string) (all []int) {
	runes := func(n int) int { return len([]rune(text[:n])) }
	for at := 0; at < len(text); {
		start, end := m([]byte(text[at:]))
		if start == end {
			break
		}
		all = append(all, runes(at+start), runes(at+end))
		at += end
	}
	return all
}

// Sums of the matches that regexp2 v1.12.0, a backtracking engine, has found in the texts of these
// tests.
var foundByBacktracking = map[string]string{
	"cjk": "71702008e594dc72", "cl100k": "46c925893eac6653", "deepseek": "2a9922909b6b5936",
	"digit": "398b39cfee93492d", "digits": "75ab218c4daf2b3a", "gpt2": "4e0bd2ee7ccc6406",
	"nanochat": "08e8a23798799bb0", "o200k": "61f4d26545004ae6", "qwen": "9614a4c907beb213",
}

// matchesOfTexts returns the matches in random texts with an end, some with bytes that are no
// characters, and a sum of them.
func matchesOfTexts(m matcher, end string, spoilt bool) (all [][]int, sum string) {
	rng, h := rand.New(rand.NewPCG(1, 2)), sha256.New()
	for range 400 {
		text := randomText(rng, 1+rng.IntN(200))
		if spoilt {
			text = string(spoil(rng, text))
		}
		found := matches(m, text+end)
		fmt.Fprintln(h, found)
		all = append(all, found)
	}
	return all, hex.EncodeToString(h.Sum(nil)[:8])
}

// What is matched by hand is what a backtracking engine finds, and so is what Go's regexp does of
// patterns that are not known. A byte that is no character counts as U+FFFD, and the long s as an
// s, which Go's regexp has too.
func TestMatchersAgree(t *testing.T) {
	for name, pattern := range allPatterns {
		hand, general := byHand(pattern), must(compileAny(pattern))
		if hand == nil {
			t.Fatalf("%s is not matched by hand", name)
		}
		if _, got := matchesOfTexts(hand, "", false); got != foundByBacktracking[name] {
			t.Errorf("%s by hand: matches with the sum %s, want %s", name, got, foundByBacktracking[name])
		}
		for _, spoilt := range []bool{false, true} {
			byHand, _ := matchesOfTexts(hand, "'ſ", spoilt)
			byRegexp, _ := matchesOfTexts(general, "'ſ", spoilt)
			for i, got := range byRegexp {
				if want := byHand[i]; !slices.Equal(got, want) {
					t.Fatalf("%s by regexp in text %d: %v, by hand %v", name, i, got, want)
				}
			}
		}
	}
}

// Patterns that no tokenizer of the known ones has.
func TestCompile(t *testing.T) {
	for pattern, c := range map[string]struct {
		text string
		want []int
	}{
		`\d+|\s+`:           {"a1２ \u3000\n", []int{1, 3, 3, 6}},
		`\S\D`:              {"a1 ab", []int{1, 3, 3, 5}},
		`[^\w\s]+`:          {"é_٣!ーʰ?", []int{3, 4, 6, 7}},
		`x*`:                {"axxb", []int{1, 3}},
		`\s+(?!\S)|\s`:      {"  a b", []int{0, 1, 1, 2, 3, 4}},
		`\s+(?!\S)`:         {" a   b ", []int{2, 4, 6, 7}},
		`a|\s+(?!\S)|\s+b`:  {"   b a", []int{0, 2, 2, 4, 5, 6}},
		`(?i:k)`:            {"kK\u212a", []int{0, 1, 1, 2, 2, 3}},
		`[\]\[]`:            {"a[]", []int{1, 2, 2, 3}},
		"[\r\n]":            {"a\r\n", []int{1, 2, 2, 3}},
		`a$`:                {"aa\na", []int{1, 2, 3, 4}},
		`(?:x|\s+(?!\S)|y)`: {"x  y", []int{0, 1, 1, 2, 3, 4}},
		`[]a]+`:             {"b]a]", []int{1, 4}},
		`[^]]+`:             {"b]a]", []int{0, 1, 2, 3}},
		`[a^]+`:             {"b^a]", []int{1, 3}},
	} {
		if got := matches(must(compile(pattern)), c.text); !slices.Equal(got, c.want) {
			t.Errorf("%q in %q: %v, want %v", pattern, c.text, got, c.want)
		}
	}
	for pattern, want := range map[string]string{
		`a(?=b)`:                           "not supported",
		`(?<!a)b`:                          "not supported",
		`\p{L}++`:                          "not supported",
		`(a)\1`:                            "not supported",
		`(?:c|\s+(?!\S)|a)b`:               "inside a group",
		`\s+(?!\S)|\s+(?!\S)`:              "not supported",
		`[[:alpha:]]`:                      "a set in a set",
		`[a-z&&b]`:                         "&&",
		`[^\S]`:                            `has \S in a set`,
		`[a`:                               "missing closing ]",
		`^a`:                               "before a match",
		`a|b\b`:                            "before a match",
		`(`:                                "missing closing",
		string(make([]byte, maxPattern+1)): "bytes",
	} {
		_, err := compile(pattern)
		wantError(t, err, want)
	}
}

// nanochat's pattern has possessive quantifiers.
func TestPatternsOfOthers(t *testing.T) {
	const nanochat = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	_, got := matchesOfTexts(must(compile(nanochat)), "東京 Tokyo東ABCé", false)
	if want := foundByBacktracking["nanochat"]; got != want {
		t.Errorf("matches with the sum %s, want %s", got, want)
	}
}

// FuzzCompile: a pattern that is taken finds matches that are in the text, one after the other.
func FuzzCompile(f *testing.F) {
	for _, p := range allPatterns {
		f.Add(p, "It's 12 ab  \n東京\xff")
	}
	f.Add(`[]^a-f]|[^]&a]`, "ab h")
	f.Add(`\s+(?!\S)|[^\s]*`, " a  b\x80")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		m, err := compile(pattern)
		if err != nil {
			return
		}
		for len(text) > 0 {
			start, end := m([]byte(text))
			if start == len(text) && end == start {
				return
			}
			if start < 0 || end <= start || end > len(text) {
				t.Fatalf("%q in %q: %d to %d", pattern, text, start, end)
			}
			text = text[end:]
		}
	})
}
