package collective

import (
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
