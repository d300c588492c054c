package datasets

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// coloured returns a mixture of counting streams that begin at different multiples of a million.
func coloured(t tb, lengths []int, weights ...float64) Stream {
	t.Helper()
	var parts []Stream
	for i, n := range lengths {
		s := countingStream(n)
		for k := range s.wide {
			s.wide[k] += int32(i) * 1e6
		}
		s.fingerprint += fmt.Sprint(" of colour ", i)
		parts = append(parts, s)
	}
	m, err := Mix(parts, weights, NewestRules)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func colour(row []int32) int { return int(row[0] / 1e6) }

func TestMixtureErrors(t *testing.T) {
	for want, weights := range map[string][]float64{
		"of 2 streams with 1 weights": {1}, "a weight of 0": {1, 0}, "a weight of -1": {-1, 1}, "a weight of NaN": {math.NaN(), 1}, "a weight of +Inf": {1, math.Inf(1)},
	} {
		_, err := Mix([]Stream{countingStream(9), countingStream(9)}, weights, NewestRules)
		wantError(t, err, want)
	}
	_, err := NewLoader(coloured(t, []int{100, 4}, 1, 1), LoaderConfig{Seq: 8, GlobalBatch: 1, Ranks: 1})
	wantError(t, err, "a sequence length of 8 needs 9 tokens, but the data has 4")
}

func TestApportion(t *testing.T) {
	for _, weights := range [][]float64{{1}, {1, 1, 1}, {0.7, 0.3}, {1e-9, 1}, {1e-9, 1e-9, 1e-9}, {3, 1e6, 2e-3, 5}} {
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		total := int64(0)
		for i, n := range apportion(weights, sum) {
			total += n
			if exact := slots * weights[i] / sum; n < 1 || exact >= 1 && math.Abs(float64(n)-exact) > 1+float64(len(weights)) {
				t.Errorf("%v: part %d has %d slots, want %v", weights, i, n, exact)
			}
		}
		if total != slots {
			t.Errorf("%v: %d slots", weights, total)
		}
	}
	if got := apportion([]float64{1, 1, 1}, 3); !slices.Equal(got, []int64{3334, 3333, 3333}) {
		t.Errorf("three equal parts have %v slots", got)
	}
}

// TestWindowsOfAMixture: each part gives its share, whatever the number of ranks.
func TestWindowsOfAMixture(t *testing.T) {
	const seq = 2
	s := coloured(t, []int{seq*100 + 1, seq*3 + 1, seq*50 + 1}, 0.6, 0.35, 0.05)
	var want [][]int32
	for _, ranks := range []int{1, 2, 3, 8} {
		var got [][]int32
		for rank := range ranks {
			w, err := NewWindows(s, WindowsConfig{Seq: seq, Count: 20, Rank: rank, Ranks: ranks})
			if err != nil {
				t.Fatal(err)
			}
			if w.Total() != 12+3+1 {
				t.Fatalf("%d windows", w.Total())
			}
			row := make([]int32, seq+1)
			for range w.All(row) {
				got = append(got, slices.Clone(row))
			}
		}
		if want == nil {
			want = got
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d ranks read %v, one %v", ranks, got, want)
		}
	}
	counts := make([]int, 3)
	for _, row := range want {
		counts[colour(row)]++
	}
	if !slices.Equal(counts, []int{12, 3, 1}) { // the second has no more
		t.Errorf("%v windows of the parts", counts)
	}
}

func TestSplitWeight(t *testing.T) {
	for given, want := range map[string]struct {
		path   string
		weight float64
		ok     bool
	}{
		"a.txt": {"a.txt", 0, false}, "a@0.7": {"a", 0.7, true}, "a@b": {"a@b", 0, false}, "x@2@1": {"x@2", 1, true}, "@1": {"@1", 0, false}, "a@-1": {"a", -1, true},
	} {
		if path, weight, ok := SplitWeight(given); path != want.path || weight != want.weight || ok != want.ok {
			t.Errorf("%q is %q, %v, %v", given, path, weight, ok)
		}
	}
}
