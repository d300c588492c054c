package save

// The clock of saves by time. Rank 0 reads it, and the sums of a step tell all ranks.

import (
	"os"
	"path/filepath"
	"time"
)

// Clock knows when a run has last saved. The ranks of a process share one, which rank 0 uses.
// It survives failures that the process survives.
type Clock struct {
	Now   func() time.Time
	Saved time.Time // when the last save began, or the run
	Late  bool      // this process has joined a running job
	again bool      // the last save has failed, and another one may succeed at once
}

// Start starts the clock unless it runs. A process that has joined a running job finds the last
// save by the configuration in the run's folder, which is written when the run starts and with
// every checkpoint. Otherwise a run whose rank 0 fails again and again would never save.
func (c *Clock) Start(folder string) {
	if !c.Saved.IsZero() {
		return
	}
	c.Saved = c.Now()
	if stat, err := os.Stat(filepath.Join(folder, "config.toml")); c.Late && err == nil && stat.ModTime().Before(c.Saved) {
		c.Saved = stat.ModTime()
	}
}

// Due returns 1 if the time between saves is over or the last save must be repeated, and 0
// otherwise.
func (c *Clock) Due(every time.Duration) float64 {
	if c.again || every > 0 && c.Now().Sub(c.Saved) >= every {
		return 1
	}
	return 0
}
