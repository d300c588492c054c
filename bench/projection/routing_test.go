package projection

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The closed forms are the means of drawing.
func TestDistinctByDrawing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, x := range []struct{ places, each, k, groups, keep int }{
		{4, 8, 3, 1, 1}, {8, 4, 6, 4, 2}, {2, 16, 4, 8, 3}, {16, 2, 5, 4, 2}, {4, 16, 8, 8, 4},
	} {
		const draws = 40000
		group := x.places * x.each / x.groups
		sum, squares := 0.0, 0.0
		for range draws {
			visited := rng.Perm(x.groups)[:x.keep]
			seen := map[int]bool{}
			for _, i := range rng.Perm(x.keep * group)[:x.k] {
				seen[(visited[i/group]*group+i%group)/x.each] = true
			}
			sum, squares = sum+float64(len(seen)), squares+float64(len(seen)*len(seen))
		}
		mean := sum / draws
		deviation := math.Sqrt((squares/draws - mean*mean) / draws)
		if got := distinctLimited(x.places, x.each, x.k, x.groups, x.keep); math.Abs(got-mean) > 5*deviation+1e-9 {
			t.Errorf("%+v: %.4f distinct, drawing gives %.4f ± %.4f", x, got, mean, deviation)
		}
	}
}

// Forced balance sends all choices of a token to one rank where eight experts lie on each, and to
// two where four do.
func TestRoundRobin(t *testing.T) {
	for _, x := range []struct {
		ep, perNode   int
		ranks, remote float64
	}{{32, 8, 1, 0.75}, {64, 8, 2, 0.875}, {8, 8, 1, 0}, {16, 8, 1, 0.5}} {
		r := Target()
		r.EP = x.ep
		s, err := r.spread(modelOf(t, "671B", false), x.perNode)
		if err != nil {
			t.Fatal(err)
		}
		if s.Ranks != x.ranks || s.RemoteNodes != x.remote {
			t.Errorf("EP%d: %+v, want %g ranks and %g remote nodes", x.ep, s, x.ranks, x.remote)
		}
	}
}
