package datasets

// What all samplers promise: after any n samples, each row of a part was read floor or ceil of
// (samples of the part)/(rows of the part) times.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tally counts the readings of each window of each part of a [coloured] stream.
type tally struct {
	weights []float64 // that add up to 1
	samples int
	of      [][]int // readings, by part and window
}

// newTally returns a tally for parts of the given numbers of windows.
func newTally(s Stream, windows []int) *tally {
	t := &tally{}
	for i, p := range s.all() {
		t.weights = append(t.weights, float64(p.slots)/slots)
		t.of = append(t.of, make([]int, windows[i]))
	}
	return t
}

// add counts a row of seq+1 tokens, and returns an error if the readings are not those of epochs,
// or if a part has a sample too many or too few.
func (t *tally) add(row []int32) error {
	part, window := colour(row), int(row[0]%1e6)/(len(row)-1)
	for i, id := range row {
		if id != row[0]+int32(i) || int(row[0]%1e6)%(len(row)-1) != 0 {
			return fmt.Errorf("%v is no window", row)
		}
	}
	t.samples++
	t.of[part][window]++
	for i, of := range t.of {
		sum := 0
		for _, n := range of {
			sum += n
		}
		if off := float64(sum) - float64(t.samples)*t.weights[i]; math.Abs(off) >= 1 {
			return fmt.Errorf("after %d samples, part %d has %+.3f samples more than its share", t.samples, i, off)
		}
		if least, most := sum/len(of), (sum+len(of)-1)/len(of); slices.Min(of) != least || slices.Max(of) != most {
			return fmt.Errorf("after %d samples, the windows of part %d were read %d to %d times, want %d to %d", t.samples, i, slices.Min(of), slices.Max(of), least, most)
		}
	}
	return nil
}

// TestEpochs: the property holds for every number of samples, for one stream and for mixtures. Any
// ranks and passes, from any position on, and read ahead or not, read the same samples.
func TestEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.IntRange(1, 4).Draw(t, "seq")
		windows := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 5).Draw(t, "windows of the parts")
		lengths, weights := make([]int, len(windows)), make([]float64, len(windows))
		for i, n := range windows {
			lengths[i] = n*seq + 1 + rapid.IntRange(0, seq-1).Draw(t, "rest")
			weights[i] = rapid.Float64Range(1e-5, 1).Draw(t, "weight")
		}
		s := countingStream(lengths[0])
		if len(windows) > 1 || rapid.Bool().Draw(t, "a mixture of one") {
			s = coloured(t, lengths, weights...)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		one := newLoader(t, s, LoaderConfig{Seq: seq, GlobalBatch: 1, Ranks: 1, Seed: seed})
		counted, all := newTally(s, windows), [][]int32{}
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			all = append(all, next(one))
			if err := counted.add(all[len(all)-1]); err != nil {
				t.Fatal(err)
			}
		}
		ranks, share := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 6).Draw(t, "rows per rank")
		first := rapid.IntRange(0, share).Draw(t, "first pass")
		cfg := LoaderConfig{Seq: seq, GlobalBatch: ranks * share, Ranks: ranks, Passes: []int{first, share - first}, Seed: seed}
		done, start := rapid.IntRange(0, len(all)).Draw(t, "resumed at"), rapid.Int64Range(0, 1<<40).Draw(t, "samples of other data")
		saved, _ := json.Marshal(State{Pos: start + int64(done), Start: start, Seq: seq, Seed: seed, Fingerprint: s.Fingerprint()})
		steps := make([][][]int32, (len(all)-done)/cfg.GlobalBatch)
		for cfg.Rank = range ranks {
			l, rows, from := NewAhead(newLoader(t, s, cfg)), make([]int32, share*(seq+1)), State{}
			defer l.Close()
			if err := errors.Join(l.Next(rows), json.Unmarshal(saved, &from)); err != nil {
				t.Fatal(err)
			}
			if err := l.Restore(from); err != nil { // which undoes the step
				t.Fatal(err)
			}
			for i := range steps {
				if err := l.Next(rows); err != nil {
					t.Fatal(err)
				}
				steps[i] = slices.AppendSeq(steps[i], slices.Chunk(slices.Clone(rows), seq+1))
			}
			if got, want := l.State().Pos, start+int64(done+len(steps)*cfg.GlobalBatch); got != want || l.Restore(State{}) == nil {
				t.Fatalf("rank %d stands at sample %d, want %d", cfg.Rank, got, want)
			}
		}
		for i, got := range steps {
			want := slices.Clone(all[done+i*cfg.GlobalBatch:][:cfg.GlobalBatch])
			slices.SortFunc(got, slices.Compare)
			slices.SortFunc(want, slices.Compare)
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Fatalf("step %d of %d ranks from sample %d on: %v, one reads %v", i, ranks, done, got, want)
			}
		}
	})
}

// TestEpochsOfEvaluations: an evaluation reads a window once at most, and all of them if it may.
func TestEpochsOfEvaluations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 5).Draw(t, "windows of the parts")
		lengths, weights := make([]int, len(windows)), make([]float64, len(windows))
		total := 0
		for i, n := range windows {
			lengths[i], weights[i] = 2*n+1, rapid.Float64Range(1e-3, 1).Draw(t, "weight")
			total += n
		}
		s, ranks := coloured(t, lengths, weights...), rapid.IntRange(1, 5).Draw(t, "ranks")
		count := rapid.OneOf(rapid.IntRange(1, 2*total), rapid.Just(1<<30)).Draw(t, "count")
		seen, row := map[int32]bool{}, make([]int32, 3)
		for rank := range ranks {
			w, err := NewWindows(s, WindowsConfig{Seq: 2, Count: count, Rank: rank, Ranks: ranks})
			if err != nil {
				t.Fatal(err)
			}
			for range w.All(row) {
				if seen[row[0]] {
					t.Fatalf("the window at %d is read twice", row[0])
				}
				seen[row[0]] = true
			}
		}
		if count == 1<<30 && len(seen) != total {
			t.Fatalf("%d windows of %d", len(seen), total)
		}
	})
}

// TestMixtureOfOldRules: the order that runs before [EpochRules] have read.
func TestMixtureOfOldRules(t *testing.T) {
	s, err := Mix([]Stream{countingStream(500), countingStream(90)}, []float64{0.7, 0.3}, TextRules)
	if err != nil {
		t.Fatal(err)
	}
	sum, l := sha256.New(), newLoader(t, s, LoaderConfig{Seq: 4, GlobalBatch: 4, Ranks: 1, Seed: 3})
	for range 6000 {
		fmt.Fprint(sum, next(l))
	}
	if got := hex.EncodeToString(sum.Sum(nil))[:16] + " " + s.Fingerprint()[:16]; got != "4ee0759950a5ff21 41bf12e4c313e939" {
		t.Errorf("the order and the mixture are %s", got)
	}
}
