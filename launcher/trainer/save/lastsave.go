package save

// The last save of a run. If it fails, the ranks keep the state in memory and try again.

import (
	"context"
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/estimate"
)

// UnsavedError says that a run has ended without a checkpoint of its last step.
type UnsavedError struct {
	Step int
	Err  error
}

// Error implements error.
func (e *UnsavedError) Error() string {
	return fmt.Sprintf("the checkpoint of step %d, the last of this run, was not saved: %v", e.Step, e.Err)
}

// Unwrap returns why the checkpoint was not saved.
func (e *UnsavedError) Unwrap() error { return e.Err }

// Pauses between attempts of the last save double from the first to the longest.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// SaveLast saves the state after the last step. For the time of save_retry it repeats what fails.
// Meanwhile the state stays in memory, and people can free space on a full disk. A request to stop
// that comes meanwhile ends it at once, with an [*UnsavedError]. It is collective.
func (c *Checkpointer) SaveLast(ctx context.Context) error {
	if ctx.Err() != nil { // this save is the answer to the request
		ctx = context.WithoutCancel(ctx)
	}
	step, told := c.State.Progress.Step, ""
	begin := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		failed, err := c.save(true)
		if err != nil || failed == nil {
			return err
		}
		left := time.Duration(c.Cfg.SaveRetry) - time.Since(begin)
		if c.Lead && left > 0 && told != failed.Error() {
			told = failed.Error()
			c.Alarms.Raise("%v%s. The state is still in memory: trying again for %v (save_retry), until Ctrl-C",
				&UnsavedError{step, failed}, estimate.AdviseSpace(c.Cfg, c.Saver.comm.Size()), left.Round(time.Second))
		}
		again, err := c.Saver.pause(ctx, min(pause, left), left > 0)
		if err != nil {
			return err
		}
		if !again {
			return &UnsavedError{step, fmt.Errorf("%w%s", failed, estimate.AdviseSpace(c.Cfg, c.Saver.comm.Size()))}
		}
	}
}

// pause waits and returns whether to try again: rank 0 decides by its clock, and any rank that is
// asked to stop ends it. It is collective.
func (s *Saver) pause(ctx context.Context, d time.Duration, again bool) (bool, error) {
	// Waiting is progress: a rank that waits is not hung.
	const look = time.Second
	for end := time.Now().Add(d); ctx.Err() == nil && time.Until(end) > 0; s.comm.Progress().Add(1) {
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Until(end), look)):
		}
	}
	end := [1]int64{}
	if s.comm.Rank() == 0 && !again || ctx.Err() != nil {
		end[0] = 1
	}
	err := collective.AllReduce(s.comm, end[:], collective.Max)
	return end[0] == 0, err
}
