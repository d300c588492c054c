package trainer

// The clock of saves by time. Rank 0 reads it, and the sums of a step tell all ranks.

import (
	"os"
	"path/filepath"
	"time"
)

// saveClock knows when a run has last saved. The ranks of a process share one, which rank 0 uses.
// It survives failures that the process survives.
type saveClock struct {
	now   func() time.Time
	saved time.Time // when the last save began, or the run
	late  bool      // this process has joined a running job
	again bool      // the last save has failed, and another one may succeed at once
}

// start starts the clock unless it runs. A process that has joined a running job finds the last
// save by the configuration in the run's folder, which is written when the run starts and with
// every checkpoint. Otherwise a run whose rank 0 fails again and again would never save.
func (c *saveClock) start(folder string) {
	if !c.saved.IsZero() {
		return
	}
	c.saved = c.now()
	if stat, err := os.Stat(filepath.Join(folder, "config.toml")); c.late && err == nil && stat.ModTime().Before(c.saved) {
		c.saved = stat.ModTime()
	}
}

// due returns 1 if the time between saves is over or the last save must be repeated, and 0
// otherwise.
func (c *saveClock) due(every time.Duration) float64 {
	if c.again || every > 0 && c.now().Sub(c.saved) >= every {
		return 1
	}
	return 0
}
