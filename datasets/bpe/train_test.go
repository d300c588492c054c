package bpe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lines yields those of a text as documents.
func lines(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(text) {
			if !yield(line) {
				return
			}
		}
	}
}

// trainingText is lines of words of very different frequencies, in several scripts.
func trainingText() []byte {
	rng := rand.New(rand.NewPCG(11, 12))
	var words []string
	for range 3000 {
		var w strings.Builder
		for range 1 + rng.IntN(7) {
			w.WriteString([]string{"ta", "ri", "on", "Qu", "ée", "東", "の", "жи", "aa", "99", "_", "->"}[rng.IntN(12)])
		}
		words = append(words, w.String())
	}
	var b bytes.Buffer
	for range 2000 {
		for range rng.IntN(12) {
			fmt.Fprintf(&b, "%s ", words[rng.IntN(1+rng.IntN(len(words)))])
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// mergesOf returns the merges of a tokenizer.json.
func mergesOf(t *testing.T, data []byte) merges {
	t.Helper()
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f.Model.Merges
}

// Hugging Face's trainer, version 0.22, made the same merges of the same lines. Its file was
// written with a ByteLevel pre-tokenizer behind a Split by the pattern of cl100k_base.
func TestTrainAgainstHuggingFace(t *testing.T) {
	want := strings.Split(strings.TrimSpace(string(must(os.ReadFile("testdata/merges-huggingface.txt")))), "\n")
	own := must(Train(t.Context(), lines(trainingText()), MinVocab+len(want)))
	got := mergesOf(t, must(own.JSON()))
	if len(got) != len(want) {
		t.Fatalf("%d merges, want %d", len(got), len(want))
	}
	for i, m := range got {
		if m[0]+" "+m[1] != want[i] {
			t.Fatalf("merge %d is %q, want %q", i, m, want[i])
		}
	}
}

// Each merge is of the pair that occurs most often in all words as they are by then: here counted
// anew for every merge.
func TestTrainGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.MapOfN(rapid.StringOfN(rapid.SampledFrom([]rune("abAB")), 1, 12, -1), rapid.Int64Range(1, 5), 1, 12).Draw(t, "words")
		var ids [256]int32
		for i := range ids {
			ids[i] = int32(i)
		}
		tr := newTraining(words, &ids)
		tokens := map[string][]int32{}
		for w := range words {
			for _, b := range []byte(w) {
				tokens[w] = append(tokens[w], int32(b))
			}
		}
		for next := int32(256); ; next++ {
			counts := map[pair]int64{}
			for w, n := range words {
				for i := 1; i < len(tokens[w]); i++ {
					counts[pairOf(tokens[w][i-1], tokens[w][i])] += n
				}
			}
			var want pair
			for _, p := range slices.Sorted(maps.Keys(counts)) {
				if counts[p] >= 2 && counts[p] > counts[want] {
					want = p
				}
			}
			got, ok := tr.best()
			if got != want || ok != (want != 0) {
				t.Fatalf("merge %d is of %x (%v), want %x, of %v", next, got, ok, want, counts)
			}
			if !ok {
				return
			}
			tr.merge(got, next)
			for w, all := range tokens {
				for i := 0; i+1 < len(all); i++ {
					if pairOf(all[i], all[i+1]) == want {
						all = slices.Replace(all, i, i+2, next)
					}
				}
				tokens[w] = all
			}
		}
	})
}

// The number of cores and the cut into chunks change nothing.
func TestTrainDeterministic(t *testing.T) {
	text := bytes.Repeat(trainingText(), chunkBytes/len(trainingText())+2)[5:] // a chunk could end in a word
	whole := func(yield func([]byte) bool) { yield(text) }
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var want []byte
	for _, cores := range []int{1, 3} {
		runtime.GOMAXPROCS(cores)
		got := must(must(Train(t.Context(), whole, 400)).JSON())
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("on %d cores it is another tokenizer", cores)
		}
	}
	var parts []string
	for rest := text; len(rest) > 0; {
		n := chunkEnd(rest)
		parts = append(parts, string(rest[:n]))
		rest = rest[n:]
	}
	uncut, cut := map[string]*int64{}, map[string]*int64{}
	countIn(uncut, text)
	for _, p := range parts {
		countIn(cut, []byte(p))
	}
	if len(parts) < 2 || len(cut) != len(uncut) {
		t.Errorf("%d chunks have %d words, the whole has %d", len(parts), len(cut), len(uncut))
	}
	for w, n := range uncut {
		if cut[w] == nil || *cut[w] != *n {
			t.Errorf("%q is not counted alike", w)
		}
	}
}

// What has been trained encodes its text in fewer tokens, ends documents, and has its ids in the
// order of Hugging Face.
func TestTrain(t *testing.T) {
	text := trainingText()
	own := must(Train(t.Context(), lines(text), 500))
	if own.VocabSize() != 500 || own.end != 0 || own.bytes['!'] != 1 || !strings.HasPrefix(own.Name(), "bpe:") {
		t.Errorf("%s has %d ids, the end is %d and ! is %d", own.Name(), own.VocabSize(), own.end, own.bytes['!'])
	}
	ids := own.Encode(append(text, 0))
	if len(ids) > len(text)/2 || ids[len(ids)-1] != 0 || !bytes.Equal(own.Decode(ids), append(text, 0)) {
		t.Errorf("%d tokens of %d bytes, the last is %d", len(ids), len(text), ids[len(ids)-1])
	}
	few := must(Train(t.Context(), lines([]byte("abab ab\n\x00cd")), 10000))
	if got := few.VocabSize(); got != MinVocab+1 {
		t.Errorf("%d ids: only ab occurs twice", got)
	}
	if got := must(Train(t.Context(), lines(nil), MinVocab)).VocabSize(); got != MinVocab {
		t.Errorf("of nothing there are %d ids", got)
	}
	_, err := Train(t.Context(), lines(text), MinVocab-1)
	wantError(t, err, "256 tokens: expected 257")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Train(ctx, lines(text), 500); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
