package trainer

import (
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
)

// A rank is named when it is slow twice in a row, once, and when it keeps up again.
func TestJudgeStragglers(t *testing.T) {
	s := newStragglers(collective.NewWorld(3).Comm(0), nil)
	for i, test := range []struct {
		seconds []float64
		want    []string
	}{
		{[]float64{1, 1.1, 1.3}, nil},
		{[]float64{1, 1.1, 3}, nil},
		{[]float64{1, 1.1, 3}, []string{"rank 2 is slow"}},
		{[]float64{1, 1.1, 3}, nil},
		{[]float64{1, 5, 1.2}, []string{"rank 2 keeps up again"}},
		{[]float64{1, 1.5, 1.2}, nil},
		{[]float64{5, 1.5, 1.2}, nil},
		{[]float64{5, 1.5, 1.2}, []string{"rank 0 is slow"}},
		{[]float64{0, 0, 0}, []string{"rank 0 keeps up again"}},
	} {
		got := s.judge(test.seconds)
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%d: %q, want %q", i, got, test.want)
		}
	}
}
