package bpe

// The patterns of well-known tokenizers, matched by hand-written code: ten times as fast as a
// general engine, and in linear time.

import (
	"bytes"
	"unicode/utf8"
)

// matcher finds the first match of a pattern: text[start:end], which is not empty. If there is
// none, both are len(text). text is not empty.
type matcher func(text []byte) (start, end int)

// The patterns as in tokenizer.json, with line ends written as escapes.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	cl100kPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Qwen's: digits one by one.
	qwenPattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	digitPattern = `\p{N}`
	// DeepSeek-V3's three, one after the other.
	digitsPattern   = `\p{N}{1,3}`
	cjkPattern      = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" +
		`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// byHand returns the hand-written matcher of a pattern, or nil.
func byHand(pattern string) matcher {
	t := classes()
	switch pattern {
	case gpt2Pattern:
		return t.gpt2
	case cl100kPattern:
		return func(text []byte) (int, int) { return 0, t.cl100k(text, 3) }
	case qwenPattern:
		return func(text []byte) (int, int) { return 0, t.cl100k(text, 1) }
	case o200kPattern:
		return t.o200k
	case digitsPattern:
		return t.numbers(3)
	case digitPattern:
		return t.numbers(1)
	case cjkPattern:
		return cjk
	case deepseekPattern:
		return t.deepseek
	}
	return nil
}

func (t *classTable) gpt2(text []byte) (int, int) {
	if n := contraction(text, false); n > 0 {
		return 0, n
	}
	i := 0
	if text[0] == ' ' {
		i = 1
	}
	for _, kind := range [...]class{letter, number, mark | punct | rest} {
		if end := t.run(text, i, kind); end > i {
			return 0, end
		}
	}
	return 0, t.spaces(text)
}

func (t *classTable) cl100k(text []byte, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	first, n := t.at(text, 0)
	i := 0
	if first&letter == 0 && prefixes(text[0], first) {
		i = n
	}
	if end := t.run(text, i, letter); end > i {
		return end
	}
	return t.numberOrRest(text, digits, "\r\n")
}

// numberOrRest matches \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[after]*|\s*[\r\n]+|\s+(?!\S)|\s+
func (t *classTable) numberOrRest(text []byte, digits int, after string) int {
	if end := t.digits(text, digits); end > 0 {
		return end
	}
	i := 0
	if text[0] == ' ' {
		i = 1
	}
	if end := t.run(text, i, mark|punct|rest); end > i {
		return skip(text, end, after)
	}
	return t.lines(text)
}

func (t *classTable) o200k(text []byte) (int, int) {
	first, n := t.at(text, 0)
	starts := [2]int{0, 0}
	from := starts[1:] // where a word may begin, in the order of the pattern
	if first&letter == 0 && prefixes(text[0], first) {
		starts[0], from = n, starts[:]
	}
	for _, i := range from {
		if end := t.lowerWord(text, i); end > 0 {
			return 0, end + contraction(text[end:], true)
		}
	}
	for _, i := range from {
		if end := t.run(text, i, upper|caseless|mark); end > i {
			return 0, end + contraction(text[end:], true)
		}
	}
	return 0, t.numberOrRest(text, 3, "\r\n/")
}

// lowerWord matches [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at text[i:] and
// returns its end, or 0. If no lower-case letter follows the first part, that part gives back
// characters down to the last one that both parts may hold.
func (t *classTable) lowerWord(text []byte, i int) int {
	end := 0
	for {
		c, n := t.at(text, i)
		switch {
		case c == lower:
			return t.run(text, i, lower|caseless|mark)
		case c&(caseless|mark) != 0:
			end = i + n
		case c != upper:
			return end
		}
		i += n
	}
}

func (t *classTable) deepseek(text []byte) (int, int) {
	for start := 0; start < len(text); {
		if end := t.deepseekAt(text[start:]); end > 0 {
			return start, start + end
		}
		_, n := t.at(text, start)
		start += n
	}
	return len(text), len(text)
}

// deepseekAt matches at the beginning of text; 0: no match, as for numbers and control characters
// alone.
func (t *classTable) deepseekAt(text []byte) int {
	first, n := t.at(text, 0)
	if first == punct {
		if text[0] < utf8.RuneSelf {
			if end := latin(text, 1); end > 1 {
				return end
			}
		}
		return skip(text, t.run(text, 0, punct), "\r\n")
	}
	i := 0
	if first&(letter|mark) == 0 && prefixes(text[0], 0) {
		i = n
	}
	if end := t.run(text, i, letter|mark); end > i {
		return end
	}
	if text[0] == ' ' {
		if end := t.run(text, 1, punct); end > 1 {
			return skip(text, end, "\r\n")
		}
	}
	if first != space {
		return 0
	}
	return t.lines(text)
}

// numbers matches \p{N}{1,most}.
func (t *classTable) numbers(most int) matcher {
	return func(text []byte) (int, int) {
		for start := 0; start < len(text); {
			if end := t.digits(text[start:], most); end > 0 {
				return start, start + end
			}
			_, n := t.at(text, start)
			start += n
		}
		return len(text), len(text)
	}
}

func cjk(text []byte) (int, int) {
	in := func(i int) (bool, int) {
		r, n := utf8.DecodeRune(text[i:])
		return 0x4E00 <= r && r <= 0x9FA5 || 0x3040 <= r && r <= 0x30FF, n
	}
	for start := 0; start < len(text); start++ {
		if text[start] < 0xE3 { // the first byte of the lowest of them
			continue
		}
		ok, n := in(start)
		end := start
		for ok {
			if end += n; end == len(text) {
				break
			}
			ok, n = in(end)
		}
		if end > start {
			return start, end
		}
	}
	return len(text), len(text)
}

// prefixes reports whether the first character of text may precede a word: it is not a line end,
// letter or number.
func prefixes(b byte, c class) bool { return b != '\r' && b != '\n' && c != number }

// contraction matches 's|'t|'re|'ve|'m|'ll|'d at the beginning of text, also in upper case if fold
// is set.
func contraction(text []byte, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	var word [2]byte
	copy(word[:], text[1:])
	if fold {
		if bytes.HasPrefix(text[1:], []byte("ſ")) { // which folds to s
			return 1 + len("ſ")
		}
		word[0], word[1] = word[0]|0x20, word[1]|0x20
	}
	switch word[0] {
	case 's', 't', 'm', 'd':
		return 2
	}
	switch string(word[:]) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

// digits matches \p{N}{1,most} at the beginning of text.
func (t *classTable) digits(text []byte, most int) (end int) {
	for range most {
		c, n := t.at(text, end)
		if c != number {
			break
		}
		end += n
	}
	return end
}

// spaces matches \s+(?!\S)|\s+ at the beginning of text: white space, except the last of several
// characters if a word follows, which may then take it as its prefix.
func (t *classTable) spaces(text []byte) int {
	end, last := 0, 0
	for {
		c, n := t.at(text, end)
		if c != space {
			break
		}
		last = end
		end += n
	}
	if last > 0 && end < len(text) {
		return last
	}
	return end
}

// lines matches \s*[\r\n]+|\s+(?!\S)|\s+ at the beginning of text: white space up to its last line
// end, if it has one.
func (t *classTable) lines(text []byte) int {
	if i := bytes.LastIndexAny(text[:t.run(text, 0, space)], "\r\n"); i >= 0 {
		return i + 1
	}
	return t.spaces(text)
}

// skip returns the end of the bytes of set that begin at text[i:].
func skip(text []byte, i int, set string) int {
	for i < len(text) && (text[i] == set[0] || text[i] == set[1] || len(set) > 2 && text[i] == set[2]) {
		i++
	}
	return i
}

// latin returns the end of the letters A-Z and a-z that begin at text[i:].
func latin(text []byte, i int) int {
	for i < len(text) && 'a' <= text[i]|0x20 && text[i]|0x20 <= 'z' {
		i++
	}
	return i
}
