package trainer

import (
	"testing"
	"time"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
)

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
