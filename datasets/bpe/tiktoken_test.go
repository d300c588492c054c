package bpe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Published ids. Sources: OpenAI's cookbook, "How to count tokens with tiktoken"; tiktoken's
// README; GPT-2's documentation.
func TestTiktokenPublished(t *testing.T) {
	for _, c := range []struct {
		encoding, text string
		want           []int32
	}{
		{"cl100k_base", "tiktoken is great!", []int32{83, 1609, 5963, 374, 2294, 0}},
		{"o200k_base", "2 + 2 = 4", []int32{17, 659, 220, 17, 314, 220, 19}},
		{"gpt2", "Hello world", []int32{15496, 995}},
		{"gpt2", "\x00", []int32{50256}},
		{"cl100k_base", "<|endoftext|>", []int32{27, 91, 8862, 728, 428, 91, 29}},
	} {
		if got := encodingOf(c.encoding).Encode([]byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s of %q: %v, want %v", c.encoding, c.text, got, c.want)
		}
	}
	sizes := map[string]int{"gpt2": 50257, "r50k_base": 50257, "p50k_base": 50281, "cl100k_base": 100277, "o200k_base": 200019}
	for name, size := range sizes {
		if got := encodingOf(name).VocabSize(); got != size {
			t.Errorf("%s has %d ids, want %d", name, got, size)
		}
	}
	if got := encodingOf("gpt2").Name(); got != "tiktoken:r50k_base" {
		t.Errorf("gpt2 is called %s", got)
	}
	_, err := Tiktoken("claude")
	wantError(t, err, `"claude"`, "use gpt2, cl100k_base, o200k_base")
}

// The ids are those that tiktoken-go v0.1.8 has given, and what is written as a tokenizer.json and
// read again gives them too.
func TestTiktokenAgrees(t *testing.T) {
	for name, want := range map[string]string{
		"r50k_base": "112eedfab8e15efd", "p50k_base": "4484782b7533538f",
		"cl100k_base": "8f670fcfbaeddda1", "o200k_base": "3536fb4fbb464d04",
	} {
		own := encodingOf(name)
		written := own
		if name == "cl100k_base" {
			written = must(Parse(must(own.JSON())))
		}
		if own.VocabSize() != written.VocabSize() || own.end != written.end {
			t.Errorf("%s has %d ids and end %d, as a file %d and %d", name, own.VocabSize(), own.end, written.VocabSize(), written.end)
		}
		rng, sum := rand.New(rand.NewPCG(5, 6)), sha256.New()
		for range 50 {
			text := randomText(rng, 1+rng.IntN(1000))
			ids := own.Encode([]byte(text))
			fmt.Fprintln(sum, ids)
			if got := written.Encode([]byte(text)); !slices.Equal(got, ids) {
				t.Fatalf("%s as a file, of %q: %v, want %v", name, text, got, ids)
			}
		}
		if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want {
			t.Errorf("%s: ids have the sum %s, want %s", name, got, want)
		}
	}
}
