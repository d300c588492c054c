package figure

import (
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

func labels(ticks []plot.Tick) (list []string) {
	for _, tick := range ticks {
		list = append(list, tick.Label)
	}
	return list
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		ticks []plot.Tick
		want  string
	}{
		{Linear(5, Plain).Ticks(0, 1500), "0 500 1000 1500"},
		{Linear(3, Plain).Ticks(0, 40), "0 20 40"},
		{Linear(8, Signed).Ticks(-0.62, 0.62), "−0.6 −0.4 −0.2 0.0 +0.2 +0.4 +0.6"},
		{Linear(6, Signed).Ticks(-0.625, 0.625), "−0.50 −0.25 0.00 +0.25 +0.50"},
		{Linear(5, Plain).Ticks(0.999, 1.001), "0.9990 0.9995 1.0000 1.0005 1.0010"},
		{Linear(5, Plain).Ticks(1e18, 1e18+1024), "1000000000000000000 1000000000000000256 1000000000000000512 1000000000000000768 1000000000000001024"},
		{Logarithmic(0.3, 3), "0.5 1 2"},
		{Logarithmic(2.2, 6.1), "3 4 5 6"},
		{Whole(5).Ticks(0, 12), "0 5 10"},
		{Whole(5).Ticks(0, 2), "0 1 2"},
		{Whole(5).Ticks(0, 1500), "0 500 1000 1500"},
		{Logarithmic(0.01, 100), "0.01 0.1 1 10 100"},
	} {
		if got := strings.Join(labels(test.ticks), " "); got != test.want {
			t.Errorf("ticks %s, want %s", got, test.want)
		}
	}
}
