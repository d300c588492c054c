package exchange

// The traffic that follows from routing: with choices among all experts, and among those of half
// the ranks, as in node-limited routing.

import (
	"fmt"
	"math/rand/v2"

	"spmoe/collective/ep"
)

// routing reports the bytes per token that leave its rank, if each choice takes a row and if each
// visited rank does.
func (s *suite) routing(sh shape) error {
	n := s.comm.Size()
	layout, err := ep.NewLayout((sh.experts+n-1)/n*n, n)
	if err != nil || !s.lead() || n == 1 {
		return err
	}
	for _, way := range []struct {
		name  string
		ranks int
	}{{"free", n}, {"limited", n / 2}} {
		if way.ranks*layout.PerRank < sh.slots {
			continue // a token could not choose that many
		}
		t := layout.Traffic(choices(layout, sh, way.ranks), sh.slots)
		rows, visits := 0, 0
		for rank := 1; rank < n; rank++ {
			rows, visits = rows+t.RowsPerRank[rank], visits+t.TokensPerRank[rank]
		}
		perToken := float64(2*sh.hidden) / float64(sh.tokens)
		s.yield(Result{Name: fmt.Sprintf("bytes_a_token_by_choice_%s_top%d", way.name, sh.slots), Unit: "B", Value: perToken * float64(rows)})
		s.yield(Result{Name: fmt.Sprintf("bytes_a_token_by_rank_%s_top%d", way.name, sh.slots), Unit: "B", Value: perToken * float64(visits)})
	}
	return nil
}

// choices returns the choices of a batch: distinct experts, equally likely, of some ranks, which
// are equally likely too.
func choices(layout ep.Layout, sh shape, ranks int) []int32 {
	rng := rand.New(rand.NewPCG(1, uint64(ranks)))
	var topk []int32
	for range sh.tokens {
		visited := rng.Perm(layout.Ranks)[:ranks]
		for _, i := range rng.Perm(ranks * layout.PerRank)[:sh.slots] {
			first, _ := layout.Local(visited[i/layout.PerRank])
			topk = append(topk, int32(first+i%layout.PerRank))
		}
	}
	return topk
}
