package ep

// Where experts live: in contiguous blocks of equal size, rank by rank.

import (
	"fmt"
	"strconv"
	"strings"
)

// Layout assigns experts to ranks: expert e is on rank e / PerRank.
type Layout struct {
	Experts int
	Ranks   int
	PerRank int // experts per rank
}

// NewLayout divides experts among ranks. It returns an error if they cannot be divided evenly.
func NewLayout(experts, ranks int) (Layout, error) {
	if experts < 1 || ranks < 1 {
		return Layout{}, fmt.Errorf("ep: %d experts on %d ranks: at least one of each is needed", experts, ranks)
	}
	if experts%ranks != 0 {
		return Layout{}, fmt.Errorf("ep: %d ranks do not divide %d experts: use %s ranks", ranks, experts, divisors(experts))
	}
	return Layout{Experts: experts, Ranks: ranks, PerRank: experts / ranks}, nil
}

// Owner returns the rank that has the expert.
func (l Layout) Owner(expert int) int { return expert / l.PerRank }

// Local returns the range [lo, hi) of the experts of a rank.
func (l Layout) Local(rank int) (lo, hi int) { return rank * l.PerRank, (rank + 1) * l.PerRank }

// divisors lists the divisors of n: "1, 2, 3 or 6".
func divisors(n int) string {
	var list []string
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			list = append(list, strconv.Itoa(d))
		}
	}
	last := len(list) - 1
	if last == 0 {
		return list[0]
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}
