package trainer

import (
	"math"
	"testing"
	"time"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
)

func TestRecent(t *testing.T) {
	var l state.Recent
	if !math.IsNaN(l.Mean()) {
		t.Errorf("the mean of nothing is %g", l.Mean())
	}
	for i := range 25 {
		l.Add(float64(i))
		first := max(0, i-9)
		if want := float64(first+i) / 2; l.Mean() != want || len(l) != i-first+1 {
			t.Errorf("the mean of the last of 0 to %d is %g of %d, want %g of %d", i, l.Mean(), len(l), want, i-first+1)
		}
	}
}

// Rates are means since the line before, and time that is paused for belongs to none.
func TestMeter(t *testing.T) {
	m, clock := testMeter(t)
	m.Start(state.Progress{Step: 10})
	*clock = clock.Add(100 * time.Hour)
	s := m.Lap(events.Step{Step: 110, Steps: 310})
	want := 100 * 32 / (100 * 3600.0)
	if s.TokensPerSec != want || s.FLOPS != 100*want || s.MFU != 100*want/1e6 || s.Elapsed != 100*time.Hour {
		t.Errorf("100 steps of 32 tokens in 100 h: %g tokens/s, want %g; %g FLOP/s, MFU %g, elapsed %v", s.TokensPerSec, want, s.FLOPS, s.MFU, s.Elapsed)
	}
	*clock = clock.Add(110 * time.Hour)
	m.Pause(10 * time.Hour)
	if s = m.Lap(events.Step{Step: 210, Steps: 310}); s.TokensPerSec != want || s.Elapsed != 200*time.Hour {
		t.Errorf("100 steps of 32 tokens in 100 h, without a pause: %g tokens/s, want %g; elapsed %v", s.TokensPerSec, want, s.Elapsed)
	}
}

// testMeter returns a meter with a clock that the test moves.
func testMeter(t *testing.T) (*observe.Meter, *time.Time) {
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &observe.Meter{Cfg: config.Config{Batch: 4, Seq: 8, LogEvery: 1}, Peak: 1e6, Flops: 100, Now: func() time.Time { return clock }}, &clock
}

// The time that is left follows the machine: it is that of the last steps, without pauses.
func TestETA(t *testing.T) {
	m, clock := testMeter(t)
	m.Start(state.Progress{})
	step := 0
	make := func(n int, each, paused time.Duration) events.Step {
		var r reports
		for range n {
			step++
			*clock = clock.Add(each)
			m.Show(&r, events.Step{Step: step, Steps: 1000}, false)
			*clock = clock.Add(paused)
			m.Pause(paused)
		}
		return r.steps[len(r.steps)-1]
	}
	if s := make(400, time.Second, 0); s.ETA != 600*time.Second {
		t.Errorf("600 steps of 1 s are left in %v", s.ETA)
	}
	if s := make(50, 3*time.Second, time.Minute); s.ETA != 550*3*time.Second {
		t.Errorf("550 steps of 3 s are left in %v", s.ETA)
	}
}
