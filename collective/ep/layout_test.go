package ep

import (
	"slices"
	"testing"
)

func TestLayout(t *testing.T) {
	l, err := NewLayout(12, 4)
	if err != nil {
		t.Fatal(err)
	}
	for e := range 12 {
		lo, hi := l.Local(l.Owner(e))
		if e < lo || e >= hi || hi-lo != 3 || l.Owner(e) != e/3 {
			t.Errorf("expert %d is on rank %d, which has [%d, %d)", e, l.Owner(e), lo, hi)
		}
	}
}

func TestLayoutErrors(t *testing.T) {
	for _, test := range []struct {
		experts, ranks int
		want           string
	}{
		{12, 8, "ep: 8 ranks do not divide 12 experts: use 1, 2, 3, 4, 6 or 12 ranks"},
		{1, 2, "ep: 2 ranks do not divide 1 experts: use 1 ranks"},
		{7, 2, "ep: 2 ranks do not divide 7 experts: use 1 or 7 ranks"},
		{0, 1, "ep: 0 experts on 1 ranks: at least one of each is needed"},
		{4, 0, "ep: 4 experts on 0 ranks: at least one of each is needed"},
	} {
		if _, err := NewLayout(test.experts, test.ranks); err == nil || err.Error() != test.want {
			t.Errorf("%d experts on %d ranks: got %v, want %s", test.experts, test.ranks, err, test.want)
		}
	}
}

func TestTraffic(t *testing.T) {
	l, err := NewLayout(6, 3)
	if err != nil {
		t.Fatal(err)
	}
	got := l.Traffic([]int32{0, 1, 5, 2, -1, 3, -1, -1, -1, 4, 0, 4}, 3)
	if want := []int{2, 1, 1, 1, 2, 1}; !slices.Equal(got.RowsPerExpert, want) {
		t.Errorf("rows of experts: %v, want %v", got.RowsPerExpert, want)
	}
	if want := []int{3, 2, 3}; !slices.Equal(got.RowsPerRank, want) {
		t.Errorf("rows of ranks: %v, want %v", got.RowsPerRank, want)
	}
	if want := []int{2, 1, 2}; !slices.Equal(got.TokensPerRank, want) {
		t.Errorf("tokens of ranks: %v, want %v", got.TokensPerRank, want)
	}
	if want := []bool{true, false, true, false, true, false, false, false, false, true, false, true}; !slices.Equal(got.TokenInRank, want) {
		t.Errorf("tokens in ranks: %v, want %v", got.TokenInRank, want)
	}
}
