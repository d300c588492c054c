package bpe

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// must returns the value of a call that cannot fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// encodingOf opens each encoding once.
var encodingOf = func() func(name string) *Tokenizer {
	opened := map[string]func() *Tokenizer{}
	for _, name := range []string{"gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base"} {
		opened[name] = sync.OnceValue(func() *Tokenizer { return must(Tiktoken(name)) })
	}
	return func(name string) *Tokenizer { return opened[name]() }
}()

// samples are what texts are put together of: all that patterns tell apart, and what stands beside
// it in real text.
var samples = []string{
	" ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u3000", "\u2028", "\v", "\u0085",
	"the", "The", "THE", "HTTPServer", "iPhone", "naïve", "ǅungla", "ÀÉÎ", "straße", "İstanbul", "tokenization", "x",
	"'s", "'T", "'re", "'VE", "'ll", "'d", "'M", "'", "’s", "don't", "I'LL",
	"0", "7", "42", "1234567", "3.14159", "½", "Ⅻ", "٣٤٥", "𝟘𝟙𝟚𝟛", "১২৩৪", "²",
	".", ",", "!!!", "...", "/*", "*/", "//", "->", "==", "(", ")", "{", "}", "#include", "_snake_case", "$x", "<|", "|>", "\\", "`", "~", "€", "→", "—", "/\n", "://",
	"東京", "你好，世界", "龥", "一", "龦", "ひらがな", "カタカナ", "ー", "゠", "한국어", "\u3040", "𠀀𪜶",
	"😀", "👨\u200d👩\u200d👧", "🏳️\u200d🌈", "e\u0301", "\u0301", "\u0301\u0302", "ก็", "हिन्दी", "עברית", "العربية", "ʰ", "ª",
	"\u200b", "\u200d", "\ufeff", "\x01", "\x7f", "\u00ad", "\ue000", "\ufffd", "\U0010fffd",
}

// randomText returns about n bytes of text of all planes.
func randomText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		switch rng.IntN(12) {
		case 0:
			r := rune(1 + rng.IntN(utf8.MaxRune))
			if !utf8.ValidRune(r) {
				continue
			}
			b.WriteRune(r)
		case 1:
			b.WriteRune(rune(1 + rng.IntN(0x2fff)))
		case 2:
			b.WriteByte(byte(1 + rng.IntN(0x7f)))
		case 3:
			b.WriteString(strings.Repeat(samples[rng.IntN(len(samples))], 1+rng.IntN(5)))
		default:
			b.WriteString(samples[rng.IntN(len(samples))])
		}
	}
	return b.String()
}

// spoil puts bytes into text that are no characters.
func spoil(rng *rand.Rand, text string) []byte {
	bytes := []byte(text)
	for range 1 + len(bytes)/20 {
		bytes[rng.IntN(len(bytes))] = byte(rng.IntN(256))
	}
	return bytes
}

// wantError fails unless err says all of parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}
