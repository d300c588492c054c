package datasets

import (
	"math"
	"slices"
	"testing"
)

// evaluation returns the first tokens of the windows of all ranks, in rank order.
func evaluation(t *testing.T, s Stream, cfg WindowsConfig) (firsts []int32) {
	t.Helper()
	sum := 0
	row := make([]int32, cfg.Seq+1)
	for cfg.Rank = range cfg.Ranks {
		w, err := NewWindows(s, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if least, most := w.Total()/cfg.Ranks, (w.Total()+cfg.Ranks-1)/cfg.Ranks; w.Len() < least || w.Len() > most {
			t.Errorf("rank %d of %d has %d windows of %d, want %d to %d", cfg.Rank, cfg.Ranks, w.Len(), w.Total(), least, most)
		}
		sum += w.Len()
		at := 0
		for i := range w.All(row) {
			if i != at {
				t.Fatalf("window %d comes as %d", at, i)
			}
			at++
			if row[cfg.Seq] != row[0]+int32(cfg.Seq) || row[0]%int32(cfg.Seq) != 0 {
				t.Fatalf("%d is not a window", row)
			}
			firsts = append(firsts, row[0])
		}
		if at != w.Len() {
			t.Fatalf("rank %d yields %d windows of %d", cfg.Rank, at, w.Len())
		}
		if cfg.Rank == cfg.Ranks-1 && sum != w.Total() {
			t.Fatalf("ranks have %d windows together, want %d", sum, w.Total())
		}
	}
	return firsts
}

func TestWindowsAreEvenlySpread(t *testing.T) {
	const seq, in = 4, 30
	s := countingStream(seq*in + 2)
	for _, count := range []int{1, 2, 7, 10, 29, 30, 31, 1000, math.MaxInt} {
		firsts := evaluation(t, s, WindowsConfig{Seq: seq, Count: count, Ranks: 1})
		if want := min(count, in); len(firsts) != want {
			t.Errorf("%d windows wanted, %d read, want %d", count, len(firsts), want)
		}
		gap := func(i int) int {
			end := int32(seq * in)
			if i+1 < len(firsts) {
				end = firsts[i+1]
			}
			return int(end-firsts[i]) / seq
		}
		for i := range firsts {
			least := in / len(firsts)
			if g := gap(i); g < least || g > least+1 {
				t.Errorf("%d windows: %d windows from number %d to the next, want %d or %d", count, g, i, least, least+1)
			}
		}
		for _, ranks := range []int{2, 3, 8, 50} {
			if got := evaluation(t, s, WindowsConfig{Seq: seq, Count: count, Ranks: ranks}); !slices.Equal(got, firsts) {
				t.Errorf("%d windows over %d ranks: %d, want %d", count, ranks, got, firsts)
			}
		}
	}
}

func TestWindowsErrors(t *testing.T) {
	s := countingStream(100)
	for _, tc := range []struct {
		cfg  WindowsConfig
		want []string
	}{
		{WindowsConfig{Seq: 100, Count: 1, Ranks: 1}, []string{"validation data", "has 100", "at most 99"}},
		{WindowsConfig{Seq: 10, Count: 0, Ranks: 1}, []string{"0 windows", "at least 1"}},
		{WindowsConfig{Seq: 10, Count: 1, Rank: 3, Ranks: 3}, []string{"rank 3 of 3"}},
	} {
		_, err := NewWindows(s, tc.cfg)
		wantError(t, err, tc.want...)
	}
}
