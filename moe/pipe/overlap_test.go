package pipe

// Overlapped pairs.

import (
	"fmt"
	"sync/atomic"
	"testing"

	"spmoe/collective/pipeline"
	"spmoe/moe"
)

// Pairs whose actions take turns give the bits of one rank. Some rank waits in each exchange,
// so actions do take turns.
func TestOverlap(t *testing.T) {
	const microbatches, ranks, dp = 8, 2, 2
	for i, precision := range []string{"bf16", "mxfp8"} {
		s := setup{cfg: config(1), dp: dp, ep: dp, overlap: true, recompute: moe.Recompute(i)}
		s.cfg.Layers = 4
		var err error
		if s.precision, err = moe.PrecisionByName(precision); err != nil {
			t.Fatal(err)
		}
		if s.schedule, err = pipeline.New("DualPipeV", ranks, 0, microbatches); err != nil {
			t.Fatal(err)
		}
		pairs := 0 // of all ranks; without waiting, a pair has two turns
		for _, list := range s.schedule.Ranks {
			for _, slot := range list {
				if slot.IsPair() {
					pairs += dp
				}
			}
		}
		all := newText(microbatches*dp, s.cfg.Vocab)
		want := alone(t, s.cfg, s.precision, all, microbatches)
		for ; s.ep > 0; s.ep /= 2 {
			turns := atomic.Int64{}
			s.turned = func() { turns.Add(1) }
			s.run(t, all).equals(t, fmt.Sprintf("%s, ep %d", precision, s.ep), want)
			if n := int(turns.Load()); n <= 2*pairs {
				t.Errorf("%s, ep %d: %d turns in %d pairs", precision, s.ep, n, pairs)
			}
		}
	}
}
