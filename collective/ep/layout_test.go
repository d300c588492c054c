package ep

import "testing"

func TestLayoutErrors(t *testing.T) {
	for _, test := range []struct {
		experts, ranks int
		want           string
	}{
		{12, 8, "ep: 8 ranks do not divide 12 experts: use 1, 2, 3, 4, 6 or 12 ranks"},
		{7, 2, "ep: 2 ranks do not divide 7 experts: use 1 or 7 ranks"},
		{0, 1, "ep: 0 experts on 1 ranks: at least one of each is needed"},
	} {
		if _, err := NewLayout(test.experts, test.ranks); err == nil || err.Error() != test.want {
			t.Errorf("%d experts on %d ranks: got %v, want %s", test.experts, test.ranks, err, test.want)
		}
	}
}
