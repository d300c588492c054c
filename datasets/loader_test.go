package datasets

import (
	"math"
	"slices"
	"testing"
)

func newLoader(t tb, s Stream, cfg LoaderConfig) *Loader {
	t.Helper()
	l, err := NewLoader(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// next returns the next rows of a rank, in new memory.
func next(l *Loader) []int32 {
	rows := make([]int32, l.cfg.GlobalBatch/l.cfg.Ranks*(l.cfg.Seq+1))
	l.Next(rows)
	return rows
}

// globalBatches returns, for each of steps steps, the rows of all ranks in rank order.
func globalBatches(t testing.TB, s Stream, cfg LoaderConfig, steps int) [][]int32 {
	t.Helper()
	batches := make([][]int32, steps)
	for cfg.Rank = range cfg.Ranks {
		l := newLoader(t, s, cfg)
		for i := range batches {
			batches[i] = append(batches[i], next(l)...)
		}
	}
	return batches
}

// TestPassesDoNotDependOnRanks: pass p of all ranks together is the p-th part of the global batch,
// in order. Passes may have unequal sizes.
func TestPassesDoNotDependOnRanks(t *testing.T) {
	const seq, batch = 5, 24
	s := countingStream(seq*50 + 3)
	want := globalBatches(t, s, LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: 1, Seed: 3}, 1)[0]
	for _, c := range []struct {
		ranks  int
		passes []int
	}{{1, []int{5, 19}}, {2, []int{8, 4}}, {4, []int{4, 2}}, {4, []int{1, 2, 3}}, {8, []int{2, 1}}, {3, []int{8}}} {
		cfg := LoaderConfig{Seq: seq, GlobalBatch: batch, Ranks: c.ranks, Passes: c.passes, Seed: 3}
		ranks := make([][]int32, c.ranks) // rows left of each
		for cfg.Rank = range ranks {
			ranks[cfg.Rank] = next(newLoader(t, s, cfg))
		}
		var got []int32
		for _, sequences := range c.passes {
			for r, rows := range ranks {
				n := sequences * (seq + 1)
				got, ranks[r] = append(got, rows[:n]...), rows[n:]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d ranks in passes of %d read %v, want %v", c.ranks, c.passes, got, want)
		}
	}
}

func TestRestoreRefusesAnotherRun(t *testing.T) {
	s := countingStream(101)
	l := newLoader(t, s, LoaderConfig{Seq: 5, GlobalBatch: 2, Ranks: 1, Seed: 8})
	next(l)
	here := l.State()
	for _, tc := range []struct {
		field  string
		change func(*State)
		want   []string
	}{
		{"fingerprint", func(s *State) { s.Fingerprint = "other data" }, []string{"other data", "counting to"}},
		{"fingerprint", func(s *State) { s.Fingerprint = "" }, []string{"other data"}},
		{"seq", func(s *State) { s.Seq = 6 }, []string{"length of 6", "it is 5"}},
		{"seed", func(s *State) { s.Seed = 9 }, []string{"seed 9", "it is 8"}},
		{"pos", func(s *State) { s.Pos = -1 }, []string{"-1"}},
		{"pos", func(s *State) { s.Pos = math.MaxInt64 }, []string{"damaged"}},
	} {
		state := here
		tc.change(&state)
		wantError(t, l.Restore(state), append(tc.want, tc.field+":")...)
		if l.State() != here {
			t.Fatalf("%s: a refused state moved the loader to %+v", tc.field, l.State())
		}
	}
}

func TestNewLoaderErrors(t *testing.T) {
	s := countingStream(100)
	for _, tc := range []struct {
		stream Stream
		cfg    LoaderConfig
		want   []string
	}{
		{s, LoaderConfig{Seq: 100, GlobalBatch: 1, Ranks: 1}, []string{"length of 100 needs 101 tokens", "has 100", "at most 99"}},
		{s, LoaderConfig{Seq: 0, GlobalBatch: 1, Ranks: 1}, []string{"length is 0", "at least 1"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 12, Ranks: 8}, []string{"12 samples", "8 ranks", "such as 16"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 0, Ranks: 2}, []string{"0 samples", "such as 2"}},
		{s, LoaderConfig{Seq: 9, GlobalBatch: 8, Rank: 2, Ranks: 2}, []string{"rank 2 of 2"}},
		{Stream{}, LoaderConfig{Seq: 9, GlobalBatch: 8, Ranks: 1}, []string{"0 tokens", "at least 2"}},
	} {
		_, err := NewLoader(tc.stream, tc.cfg)
		wantError(t, err, tc.want...)
	}
	// The length that the error suggests must load.
	if _, err := NewLoader(s, LoaderConfig{Seq: 99, GlobalBatch: 1, Ranks: 1}); err != nil {
		t.Error(err)
	}
}

func TestEpoch(t *testing.T) {
	l := newLoader(t, countingStream(7*20+1), LoaderConfig{Seq: 7, GlobalBatch: 10, Rank: 1, Ranks: 2})
	for i, want := range []float64{0, 0.5, 1, 1.5} {
		if got := l.Epoch(); got != want {
			t.Errorf("epoch %v after %d steps, want %v", got, i, want)
		}
		next(l)
	}
}
