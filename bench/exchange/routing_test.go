package exchange

import (
	"math"
	"testing"

	"spmoe/collective/ep"
)

// The means over many tokens are those of drawing without replacement.
func TestChoices(t *testing.T) {
	layout, err := ep.NewLayout(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	sh := shape{tokens: 20000, hidden: 1, slots: 8, experts: 64}
	for _, ranks := range []int{8, 4} {
		topk := choices(layout, sh, ranks)
		traffic := layout.Traffic(topk, sh.slots)
		visits := 0
		for token := range sh.tokens {
			seen := map[int32]bool{}
			for _, e := range topk[token*sh.slots:][:sh.slots] {
				seen[e] = true
			}
			if len(seen) != sh.slots {
				t.Fatalf("token %d chooses %v", token, topk[token*sh.slots:][:sh.slots])
			}
		}
		for _, n := range traffic.TokensPerRank {
			visits += n
		}
		// A rank that may be chosen is missed if all slots fall on the others: C(E-p, k)/C(E, k).
		experts, missed := float64(ranks*layout.PerRank), 1.0
		for i := range sh.slots {
			missed *= (experts - float64(layout.PerRank) - float64(i)) / (experts - float64(i))
		}
		want := float64(ranks) * (1 - missed)
		if got := float64(visits) / float64(sh.tokens); math.Abs(got-want) > 0.02 {
			t.Errorf("of %d ranks a token visits %.3f, want %.3f", ranks, got, want)
		}
	}
}
