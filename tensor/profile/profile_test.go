package profile

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
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

// TestProductOfProducts: one group's product is part of all groups', and the products of attention
// are its own.
func TestProductOfProducts(t *testing.T) {
	c := &clock{}
	timer := c.timer()
	timer.Start()
	all, one := Product(MX, true, Forward), Product(MX, false, Forward)
	want := Times{Rest: 5}
	want[all] = 8
	func() {
		defer timer.Switch(timer.Switch(all))
		for range 2 {
			func() {
				defer timer.Switch(timer.Switch(one))
				c.work(3)
			}()
			c.work(1)
		}
	}()
	c.work(5)
	want[Attention] = 7 + 2
	func() {
		defer timer.Switch(timer.Switch(Attention))
		timer.Switch(timer.Switch(one))
		c.work(7)
		defer timer.Switch(timer.Switch(one))
		c.work(2)
	}()
	if got := timer.Stop(); got != want {
		t.Errorf("times %v, want %v", got, want)
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

// TestTotal: whatever is switched when, the families add up to the time that has passed.
func TestTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{now: time.Duration(rapid.Int32().Draw(t, "start")), waited: time.Duration(rapid.Int32().Draw(t, "waited"))}
		timer := c.timer()
		timer.Start()
		begin := c.now
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			d := time.Duration(rapid.IntRange(0, 1000).Draw(t, "d"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				c.work(d)
			case 1:
				c.wait(d)
			case 2:
				timer.Switch(Family(rapid.IntRange(0, Families-1).Draw(t, "family")))
			case 3:
				timer.SetRecompute(rapid.Bool().Draw(t, "recompute"))
			}
		}
		times := timer.Stop()
		if total := times.Total(); total != c.now-begin {
			t.Fatalf("the families took %d, the clock went on by %d", total, c.now-begin)
		}
		sum := times
		sum.Add(&times)
		if sum.Total() != 2*times.Total() {
			t.Fatalf("twice %v is %v", times, sum)
		}
	})
}

// TestWork: a trace gets the layer of each interval, and a description only for the section that it
// was made for.
func TestWork(t *testing.T) {
	c := &clock{}
	timer := c.timer()
	type interval struct {
		f Family
		w Work
	}
	var got []interval
	product, inner := Product(BF16, true, Forward), Product(BF16, false, Forward)
	run := func() {
		timer.Start()
		c.work(1)
		before := timer.SetLayer(3)
		timer.Switch(Rows)
		timer.Describe(Rows, Work{M: 8, N: 2})
		c.work(1)
		timer.Switch(Router)
		refined := timer.Refine(Work{M: 7, N: 7})
		c.work(1)
		timer.Refine(Work{M: 1, N: 1}).End() // is part of that
		c.work(1)
		refined.End()
		c.work(1)
		timer.Continue(Work{M: 6, N: 6})
		c.work(1)
		timer.Switch(product)
		timer.Describe(product, Work{M: 4, N: 5, K: 6})
		c.work(1)
		timer.Switch(timer.Switch(inner))
		timer.Describe(inner, Work{M: 1, N: 1, K: 1}) // counts for the outer one
		c.work(1)
		timer.Switch(Rows)
		c.work(1)
		timer.SetLayer(before)
		c.work(1)
		timer.Stop()
	}
	run()
	timer.Trace = func(f Family, w Work, from, to time.Duration) {
		if n := len(got); n > 0 && got[n-1] == (interval{f, w}) {
			return
		}
		got = append(got, interval{f, w})
	}
	run()
	want := []interval{
		{Rest, Work{}}, {Rows, Work{Layer: 3, M: 8, N: 2}}, {Router, Work{Layer: 3, M: 7, N: 7}}, {Router, Work{Layer: 3, M: 6, N: 6}}, {product, Work{Layer: 3, M: 4, N: 5, K: 6}}, {Rows, Work{Layer: 3}}, {Rows, Work{}},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	timer.Trace = nil
	if n := testing.AllocsPerRun(10, run); n != 0 {
		t.Errorf("without a trace %v allocations", n)
	}
	var none *Timer
	none.Describe(Rows, Work{M: 1})
	none.Refine(Work{M: 1}).End()
	none.Continue(Work{M: 1})
	if none.Work() != (Work{}) || none.SetLayer(2) != 0 || none.Tracing() {
		t.Error("a nil timer has a layer")
	}
}

// TestNil: without a timer nothing happens.
func TestNil(t *testing.T) {
	var timer *Timer
	timer.Start()
	if f := timer.Switch(Loss); f != Rest || timer.Stop() != (Times{}) {
		t.Errorf("a nil timer was in %v and measured %v", f, timer.Stop())
	}
}

// TestNames: each family has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range Families {
		name := Family(f).String()
		if name == "" || seen[name] {
			t.Errorf("family %d is called %q, as another is", f, name)
		}
		seen[name] = true
	}
	for f, want := range map[Family]string{
		Rest: "rest", Waiting: "waiting", Product(FP32, false, Forward): "fp32 forward", Product(BF16, true, Wgrad): "bf16 grouped wgrad",
		Product(MX, false, Dgrad): "mx dgrad", Product(MX, true, Wgrad): "mx grouped wgrad", Family(Families - 1): "mx grouped wgrad",
	} {
		if got := f.String(); got != want {
			t.Errorf("family %d is called %q, want %q", f, got, want)
		}
	}
}

func BenchmarkSwitch(b *testing.B) {
	begin := time.Now()
	timer := NewTimer(func() time.Duration { return time.Since(begin) }, func() time.Duration { return 0 })
	for b.Loop() {
		timer.Switch(timer.Switch(Rows))
	}
}
