package datasets

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPermutationOfAnySize checks that places stay in range and apart where n is too large to
// visit.
func TestPermutationOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(2, math.MaxUint64).Draw(t, "n")
		p := newPermutation(n, rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "epoch"))
		i := rapid.Uint64Range(0, n-1).Draw(t, "i")
		j := rapid.Uint64Range(0, n-1).Draw(t, "j")
		if a, b := p.at(i), p.at(j); a >= n || b >= n || (a == b) != (i == j) {
			t.Fatalf("n=%d: %d -> %d, %d -> %d", n, i, a, j, b)
		}
	})
}

// TestPermutationNeverChanges pins the order, without which a checkpoint would resume into another
// one. The places were computed by an implementation in another language; 0xe220a8397b1dcdaf is the
// first output of SplitMix64 for seed 0.
func TestPermutationNeverChanges(t *testing.T) {
	if got := SplitMix64(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("SplitMix64(0) = %#x", got)
	}
	for _, tc := range []struct {
		n, seed, epoch uint64
		want           []uint64
	}{
		{10, 0, 0, []uint64{9, 5, 8, 0, 2, 6, 3, 7, 4, 1}},
		{10, 0, 1, []uint64{6, 4, 2, 0, 3, 8, 7, 5, 9, 1}},
		{10, 1, 0, []uint64{2, 0, 8, 1, 7, 4, 9, 5, 6, 3}},
		{1000003, 42, 7, []uint64{724220, 570489, 961379, 980225, 585398, 645049, 632501, 581713, 61112, 694168}},
	} {
		p := newPermutation(tc.n, tc.seed, tc.epoch)
		var got []uint64
		for i := range uint64(10) {
			got = append(got, p.at(i))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("order of %d windows, seed %d, epoch %d: %d, want %d", tc.n, tc.seed, tc.epoch, got, tc.want)
		}
	}
}
