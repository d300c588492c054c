package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"

	"spmoe/datasets/bpe"
)

// TestTiktoken: random texts have the ids that tiktoken-go gives them.
func TestTiktoken(t *testing.T) {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	rng := rand.New(rand.NewPCG(5, 7))
	pieces := []string{"It's", " the", " 2026", "12345", "\r\n", "  ", "\t", "don'T", "éa", "東京", " ünï", "_x1", "!?", "👍", "ſ"}
	for _, name := range []string{"r50k_base", "p50k_base", "cl100k_base", "o200k_base"} {
		theirs, err := tiktoken.GetEncoding(name)
		ours, wrong := bpe.Tiktoken(name)
		if err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		for range 200 {
			var text strings.Builder
			for range rng.IntN(100) {
				text.WriteString(pieces[rng.IntN(len(pieces))])
				text.WriteRune(rune(1 + rng.IntN(0x2fff)))
			}
			var want []int32
			for _, id := range theirs.EncodeOrdinary(text.String()) {
				want = append(want, int32(id))
			}
			if got := ours.Encode([]byte(text.String())); !slices.Equal(got, want) {
				t.Fatalf("%s of %q: %v, want %v", name, text.String(), got, want)
			}
		}
	}
}
