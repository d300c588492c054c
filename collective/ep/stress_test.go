package ep

// Many small random exchanges in a row, by ranks that are late now and then.

import (
	"flag"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/tensor"
)

var stress = flag.Int("stress", 4000, "exchanges of TestStress")

// late is an exchange before whose calls this rank waits now and then, so long that others park.
type late struct {
	Exchange
	chance *rand.Rand
}

func (l late) delay() {
	switch n := l.chance.IntN(256); {
	case n == 0:
		for start := time.Now(); time.Since(start) < 40*time.Microsecond; {
		}
	case n <= 16:
		runtime.Gosched()
	}
}

func (l late) StartDispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (Arrival, error) {
	l.delay()
	return l.Exchange.StartDispatch(ex, h, x, topk)
}

func (l late) Combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	l.delay()
	return l.Exchange.Combine(ex, h, y, weights, out)
}

func (l late) DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	l.delay()
	return l.Exchange.DispatchBackward(ex, h, drows, dx)
}

// One exchange of each number of ranks, with one handle and one arena, moves thousands of batches.
// A row that is lost, late, misplaced or overwritten changes a result.
func TestStress(t *testing.T) {
	const experts, most = 16, 4 // tokens of a rank
	for by, share := range map[string]float64{"goroutines": 0.97, "mappings": 0.03} {
		run := map[string]func(n int, f func(c *collective.Comm) error) error{"goroutines": goroutines, "mappings": mapped}[by]
		for _, ranks := range []int{2, 4, 8} {
			batches := make([]*batch, int(math.Ceil(float64(*stress)*share/3)))
			splits, results := make([][]int, len(batches)), make([][]result, len(batches))
			for i := range batches {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(ranks)))
				splits[i], results[i] = make([]int, ranks), make([]result, ranks)
				tokens := 0
				for r := range ranks {
					splits[i][r] = rng.IntN(most + 1)
					tokens += splits[i][r]
				}
				batches[i] = newBatch(tokens, 3+rng.IntN(6), 1+rng.IntN(3), experts, small)
				for j := range batches[i].topk { // many choose one expert
					if batches[i].topk[j] >= 0 && rng.IntN(4) < i%4 {
						batches[i].topk[j] = int32(i % experts)
					}
				}
			}
			if err := run(ranks, func(c *collective.Comm) error {
				one, err := NewOneSided(c, experts)
				if err != nil {
					return err
				}
				s, ex, h := late{one, rand.New(rand.NewPCG(uint64(c.Rank()), 7))}, newExec(c), &Handle{}
				for i, b := range batches {
					ex.Reset()
					part, r := b.of(splits[i], c.Rank()), &results[i][c.Rank()]
					if err := part.forward(ex, s, h, one.layout, c.Rank(), tensor.FP32, r); err != nil {
						return err
					}
					if err := part.backward(ex, s, h, one.layout, c.Rank(), tensor.FP32, r); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for i, b := range batches {
				if join(results[i]).wantSame(t, b.reference(tensor.FP32)); t.Failed() {
					t.Fatalf("%s, %d ranks, batch %d of %v tokens", by, ranks, i, splits[i])
				}
			}
		}
	}
}
