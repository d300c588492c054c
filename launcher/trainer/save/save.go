// Package save decides when a run saves, and writes what a checkpoint holds: FP32 master weights,
// the vectors of the optimizer's rule, the routers' selection biases, the loader's position and the
// configuration. The next step depends on nothing else.
package save

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/guard"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
	"spmoe/launcher/weights"
	"spmoe/tensor"
)

// Checkpointer saves the state of a run between its steps.
type Checkpointer struct {
	Cfg      config.Config
	Report   events.Reporter
	Lead     bool
	State    *state.TrainState
	Guard    *guard.State
	Recorder *observe.Recorder
	Alarms   *state.Alarms
	Saver    *Saver
	Clock    *Clock
	Config   []byte // config.toml
	Step     int    // of the newest checkpoint
	TimeIsUp bool   // all ranks agree that a save by time is due
}

// Prepare starts the clock of saves by time. It starts to allocate memory for copies of the state,
// if there will be any.
func (c *Checkpointer) Prepare() {
	if c.Lead {
		c.Clock.Start(c.Cfg.Out)
	}
	if c.Cfg.Copies() {
		c.Saver.AllocateCopies(c.State.Pieces())
	}
}

// intact returns what a checkpoint of the present state holds, after the guards have compared it.
// It is collective.
func (c *Checkpointer) intact() (s runState, pieces []checkpoint.Piece, err error) {
	if err := c.Guard.BeforeSave(); err != nil {
		return s, nil, err
	}
	s.step, s.run, s.Config, s.sums = c.State.Progress.Step, c.State.Progress.Run, c.Config, c.sums()
	s.Meta, err = json.Marshal(c.State.Snapshot())
	return s, c.State.Pieces(), err
}

// sums returns the checksums that the guards have of this rank's state; nil: they have none.
func (c *Checkpointer) sums() checkpoint.Sums {
	if c.Guard.Every == 0 {
		return nil
	}
	sums := checkpoint.Sums{}
	for v := range c.State.Optim.Summed {
		sums[v.Kind] += *v.Sum
	}
	for kind, padding := range c.State.Optim.Padding {
		var sum tensor.Sum
		tensor.Words(c.Guard.Ex, &sum, padding)
		sums[kind] -= sum.Load()
	}
	if c.State.First {
		for _, b := range c.Guard.Memory.Biases {
			sums[checkpoint.Kind(weights.BiasPrefix)] += *b.Sum
		}
	}
	return sums
}

// save saves the state between two steps. It waits for the last save of a run. An earlier save that
// fails raises an alarm, and the next may succeed. failed says why there is no checkpoint, if that
// is known already; err ends the run. It is collective.
func (c *Checkpointer) save(last bool) (failed, err error) {
	begin := time.Now()
	if err := c.wait(); err != nil {
		return nil, err
	}
	s, pieces, err := c.intact()
	if err != nil {
		return nil, err
	}
	if c.Lead {
		c.Clock.Saved, c.Clock.again = c.Clock.Now(), false
	}
	// The record is written to disk before the checkpoint of the same step. If that fails, the
	// ranks agree on it as on any other failure.
	c.Saver.start(s, pieces, c.Recorder.Flush(), begin, last)
	if c.Cfg.Copies() && !last {
		return nil, nil
	}
	return c.finish(c.Saver.wait())
}

// SaveIfDue saves the state after the last step if a save is due.
func (c *Checkpointer) SaveIfDue() error {
	step := c.State.Progress.Step
	if !config.Due(c.Cfg.SaveEvery.Steps(), step) && !c.TimeIsUp {
		return nil
	}
	c.Step, c.TimeIsUp = step, false
	_, err := c.save(false)
	return err
}

// Repeat saves the state that the vaults hold if a save is due, because the ranks may have failed
// before they saved it.
func (c *Checkpointer) Repeat() error {
	c.Step = -1
	if c.State.Progress.Step >= c.Cfg.Steps {
		return nil
	}
	return c.SaveIfDue()
}

// wait waits for the save in progress, if there is one.
func (c *Checkpointer) wait() error {
	if c.Saver.Pending == nil {
		return nil
	}
	_, err := c.finish(c.Saver.wait())
	return err
}

// Poll reports the save in progress if it has ended.
func (c *Checkpointer) Poll() error {
	result, ok := c.Saver.poll()
	if !ok {
		return nil
	}
	_, err := c.finish(result)
	return err
}

// Close is called with the run's error when it ends: nothing may be writing when this rank returns.
func (c *Checkpointer) Close(err error) error {
	defer c.Saver.Close()
	if errors.As(err, new(*collective.AbortError)) {
		c.Saver.cancel() // without the failed rank it cannot complete
	}
	return cmp.Or(err, c.wait())
}

// finish reports the end of a save. failed says why there is no checkpoint; err says that the ranks
// cannot continue.
func (c *Checkpointer) finish(r saveResult) (failed, err error) {
	step := r.State.step
	if r.broken != nil {
		return nil, fmt.Errorf("saving the checkpoint of step %d: %w", step, r.broken)
	}
	if !c.Lead {
		return r.failed, nil
	}
	if r.failed == nil {
		c.Report.Saved(events.Saved{
			Step:  step,
			Path:  filepath.Join(c.Cfg.Out, fmt.Sprintf("step-%08d", step)),
			Stall: r.stall,
			Lag:   r.lag,
		})
	} else if !r.Last {
		c.Clock.again = errors.Is(r.failed, checkpoint.ErrChanged)
		c.Alarms.Add(events.Alarm{Step: step, Text: fmt.Sprintf("the checkpoint of step %d was not saved, training goes on: %v", step, r.failed)})
	}
	if r.untidy != nil {
		c.Alarms.Add(events.Alarm{Step: step, Text: fmt.Sprintf("after saving the checkpoint of step %d: %v", step, r.untidy)})
	}
	return r.failed, nil
}

// The clock of saves by time. Rank 0 reads it, and the sums of a step tell all ranks.

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
