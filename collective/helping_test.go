package collective

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// aide helps so many times, and notes what it is asked.
type aide struct {
	pieces int
	calls  []bool      // of Idle
	spans  []time.Time // begin and end of each piece
}

func (a *aide) Idle(waits bool) { a.calls = append(a.calls, waits) }

func (a *aide) Help() (begin time.Time, helped bool) {
	if len(a.spans) == 2*a.pieces {
		return begin, false
	}
	begin = time.Now()
	a.spans = append(a.spans, begin, time.Now())
	return begin, true
}

// Share does the parts one by one, the last first.
func (a *aide) Share(n, _ int, do func(lo, hi int)) {
	for i := n - 1; i >= 0; i-- {
		a.pieces++
		do(i, i+1)
	}
}

// TestWaitingRankHelps: a rank that waits helps, and what it helped is not waited.
func TestWaitingRankHelps(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("ranks that share a processor do not help while they wait")
	}
	const pieces = 5
	helped := make(chan struct{})
	err := NewWorld(2).Run(func(c *Comm) error {
		if c.Rank() == 1 {
			<-helped
			return c.Barrier()
		}
		a := &aide{pieces: pieces}
		c.SetHelper(a)
		var waits []time.Time
		c.ObserveWaits(func(_ Kind, start time.Time, took time.Duration) {
			waits = append(waits, start, start.Add(took))
			if len(waits) == 2*pieces {
				close(helped)
			}
		})
		if err := c.Barrier(); err != nil {
			return err
		}
		if len(waits) != 2*(pieces+1) || len(a.spans) != 2*pieces {
			return fmt.Errorf("helped %d times between %d stretches of waiting", len(a.spans)/2, len(waits)/2)
		}
		if !slices.Equal(a.calls, []bool{true, false}) {
			return fmt.Errorf("said of waiting: %v", a.calls)
		}
		var total time.Duration
		for i := range pieces {
			if waits[2*i+1].After(a.spans[2*i]) || waits[2*i+2].Before(a.spans[2*i+1]) {
				return fmt.Errorf("piece %d counts as waiting", i)
			}
		}
		for i := 0; i < len(waits); i += 2 {
			total += waits[i+1].Sub(waits[i])
		}
		if got := c.Stats()[KindBarrier].Wait; got != total {
			return fmt.Errorf("waited %v, stretches of %v", got, total)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSharedCollectives: a large collective may be done in any parts, with the same result.
func TestSharedCollectives(t *testing.T) {
	const ranks, n = 3, 3 * 5 * blockBytes / 4
	err := NewWorld(ranks).Run(func(c *Comm) error {
		a := &aide{}
		c.SetHelper(a)
		src, want, counts := make([]float32, n), make([]float32, n), make([]int, ranks)
		for i := range src {
			src[i] = float32(i*(c.Rank()+1)%1001) / 7
			for _, x := range []int{0, 1, 2} {
				want[i] += float32(i*(x+1)%1001) / 7
			}
		}
		for i := range counts {
			counts[i] = n/ranks + i - 1
		}
		lo := sum(counts[:c.Rank()])
		mine := src[lo : lo+counts[c.Rank()]]
		if err := ReduceScatter(c, mine, src, counts, Sum); err != nil {
			return err
		}
		all := make([]float32, n)
		if err := AllGatherV(c, all, mine, counts); err != nil {
			return err
		}
		if !slices.Equal(all, want) {
			return errors.New("the gathered sums are not those of the ranks")
		}
		if a.pieces < 2*n/blockBytes {
			return fmt.Errorf("in %d parts: they were not shared", a.pieces)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
