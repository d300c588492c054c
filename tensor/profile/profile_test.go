package profile

import (
	"testing"
	"time"
)

// clock is a mock of time and of the part of it that was waited.
type clock struct{ now, waited time.Duration }

func (c *clock) timer() *Timer {
	return NewTimer(func() time.Duration { return c.now }, func() time.Duration { return c.waited })
}

func (c *clock) work(d time.Duration) { c.now += d }
func (c *clock) wait(d time.Duration) { c.now, c.waited = c.now+d, c.waited+d }

// TestSwitch: time counts for the innermost family, waiting for none but its own.
func TestSwitch(t *testing.T) {
	c := &clock{now: 1000, waited: 300}
	timer := c.timer()
	c.work(50)
	timer.Switch(Optimizer) // before Start: forgotten
	c.work(50)
	timer.Start()
	c.work(1)
	func() {
		defer timer.Switch(timer.Switch(Exchange))
		c.work(2)
		c.wait(4)
		func() {
			defer timer.Switch(timer.Switch(Rows))
			c.work(8)
		}()
		c.work(16)
	}()
	c.work(32)
	c.wait(64)
	got := timer.Stop()
	want := Times{Rest: 1 + 32, Exchange: 2 + 16, Rows: 8, Waiting: 4 + 64}
	if got != want {
		t.Errorf("times %v, want %v", got, want)
	}
	timer.Start()
	if c.work(5); timer.Stop() != (Times{Rest: 5}) {
		t.Errorf("a second start did not begin anew")
	}
}

// TestRecompute: recomputed work counts as Recompute, in every family. Waiting does not, nor does
// the work before and after it.
func TestRecompute(t *testing.T) {
	c := &clock{}
	timer := c.timer()
	timer.Start()
	timer.Switch(Rows)
	c.work(1)
	timer.SetRecompute(true)
	c.work(2)
	func() {
		defer timer.Switch(timer.Switch(Product(BF16, false, Forward)))
		c.work(4)
		c.wait(8)
	}()
	c.work(16)
	timer.SetRecompute(false)
	c.work(32)
	if got, want := timer.Stop(), (Times{Rows: 1 + 32, Recompute: 2 + 4 + 16, Waiting: 8}); got != want {
		t.Errorf("times %v, want %v", got, want)
	}
	timer.SetRecompute(true)
	if timer.Start(); timer.Stop() != (Times{}) {
		t.Error("a start did not begin anew")
	}
	timer.Start()
	if c.work(64); timer.Stop() != (Times{Rest: 64}) {
		t.Error("what follows a start is taken to be made anew")
	}
	(*Timer)(nil).SetRecompute(true)
}
