package bpe

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// deepseekLike is a tokenizer with the stages of DeepSeek-V3, and the vocabulary of GPT-2.
func deepseekLike() *Tokenizer {
	t := must(Tiktoken("gpt2"))
	t.stages = nil
	for _, p := range []string{digitsPattern, cjkPattern, deepseekPattern} {
		t.stages = append(t.stages, splitStage{match: byHand(p), behavior: isolated})
	}
	return t
}

// Any bytes come back.
func TestRoundTrip(t *testing.T) {
	all := map[string]*Tokenizer{
		"gpt2": encodingOf("gpt2"), "cl100k": encodingOf("cl100k_base"), "bytes": must(Parse(must(Bytes()))), "deepseek": deepseekLike(),
	}
	for name, own := range all {
		rapid.Check(t, func(t *rapid.T) {
			parts := rapid.SliceOfN(rapid.OneOf(
				rapid.SampledFrom(append(samples, EndOfText, "\x00")), rapid.StringN(0, 20, -1),
				rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 10), func(b []byte) string { return string(b) }),
			), 0, 30).Draw(t, "parts")
			var text []byte
			for _, p := range parts {
				text = append(text, p...)
			}
			ids := own.Encode(text)
			for _, id := range ids {
				if id < 0 || int(id) >= own.VocabSize() {
					t.Fatalf("%s: id %d of %q is outside the vocabulary", name, id, text)
				}
			}
			if back := own.Decode(ids); !bytes.Equal(back, text) {
				t.Fatalf("%s: %q comes back as %q", name, text, back)
			}
		})
	}
}

// A long piece takes no longer than its length allows, and merges as a short one does.
func TestLongPiece(t *testing.T) {
	own := encodingOf("gpt2")
	const n = 1 << 16
	text := bytes.Repeat([]byte("ab"), n)
	if got := own.Decode(own.Encode(text)); !bytes.Equal(got, text) {
		t.Error("a long piece does not come back")
	}
	if ids := own.Encode(bytes.Repeat([]byte{'a'}, n)); slices.Max(ids) != slices.Min(ids) {
		t.Errorf("a run of one letter has tokens %v and others", ids[:4])
	}
}

// Goroutines that share a tokenizer give the ids that one gives.
func TestConcurrent(t *testing.T) {
	own := encodingOf("gpt2")
	rng := rand.New(rand.NewPCG(9, 9))
	var texts [][]byte
	var want [][]int32
	for range 50 {
		texts = append(texts, spoil(rng, randomText(rng, 300)))
		want = append(want, own.Encode(texts[len(texts)-1]))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i, text := range texts {
				if got := own.Encode(text); !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v, want %v", text, got, want[i])
				}
			}
		})
	}
	group.Wait()
}

// The cache of words is emptied when it is full, and gives the same ids after as before.
func TestCache(t *testing.T) {
	own := encodingOf("gpt2")
	w := own.newWorker()
	rng := rand.New(rand.NewPCG(1, 1))
	for range cachedPieces + 100 {
		word := []byte{byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26))}
		w.ids = w.ids[:0]
		w.piece(word)
		first := slices.Clone(w.ids)
		w.ids = w.ids[:0]
		w.piece(word)
		if !slices.Equal(first, w.ids) || !slices.Equal(first, own.Encode(word)) {
			t.Fatalf("%s: %v, then %v", word, first, w.ids)
		}
		if len(w.cache) > cachedPieces {
			t.Fatalf("%d pieces are kept", len(w.cache))
		}
	}
}

// Merging takes the pair of the lowest rank, of equals the leftmost, until there is none: here by
// trying all, again and again.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := map[pair]rule{}
		for next := int32(3); next < 12; next++ {
			p := pairOf(rapid.Int32Range(0, next-1).Draw(t, "left"), rapid.Int32Range(0, next-1).Draw(t, "right"))
			rules[p] = rule{rapid.Uint32Range(0, 6).Draw(t, "rank"), next}
		}
		piece := rapid.SliceOfN(rapid.ByteRange(0, 2), 0, 40).Draw(t, "piece")
		var bytes [256]int32
		var want []int32
		for _, b := range piece {
			bytes[b] = int32(b)
			want = append(want, int32(b))
		}
		for {
			at, best := -1, rule{}
			for i := 1; i < len(want); i++ {
				if r, ok := rules[pairOf(want[i-1], want[i])]; ok && (at < 0 || r.rank < best.rank) {
					at, best = i-1, r
				}
			}
			if at < 0 {
				break
			}
			want = slices.Replace(want, at, at+2, best.id)
		}
		m := newMerger(rules)
		if got := m.merge(nil, piece, &bytes); !slices.Equal(got, want) {
			t.Fatalf("%v merges to %v, want %v", piece, got, want)
		}
	})
}
