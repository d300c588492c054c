package trainer

// When a run saves, and what a checkpoint holds: FP32 master weights, the vectors of the
// optimizer's rule, the routers' selection biases, the loader's position and the configuration. The
// next step depends on nothing else.

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"spmoe/collective"
	"spmoe/internal/seal"
	"spmoe/launcher/checkpoint"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// pieces lists a piece's tensors with their checkpoint names, and with those of the vectors of the
// state that they belong to, if these are given.
func pieces(p optim.Piece, vectors []*checkpoint.Vector) (all []checkpoint.Piece) {
	for i, v := range p.State {
		c := checkpoint.Piece{Name: v.Name + "/" + p.Param.Name, Shape: p.Param.Dims, Offset: int64(p.Offset)}
		if v.Data.DType() == tensor.BF16 {
			c.BF16 = v.Data.Bytes()
		} else {
			c.Data = v.Data.F32()
		}
		if vectors != nil {
			c.Vector = vectors[p.Vector+i]
		}
		all = append(all, c)
	}
	return all
}

// checkpointer saves the state of a run between its steps.
type checkpointer struct {
	cfg        Config
	report     Reporter
	lead       bool
	state      *trainState
	memory     *memoryGuard
	stateGuard *stateGuard
	recorder   *recorder
	tracer     *tracer
	alarms     *alarms
	saver      *saver
	clock      *saveClock
	config     sealedText // config.toml
	step       int        // of the newest checkpoint
	timeIsUp   bool       // all ranks agree that a save by time is due
}

// prepare starts the clock of saves by time. It starts to allocate memory for copies of the state,
// if there will be any.
func (c *checkpointer) prepare() {
	if c.lead {
		c.clock.start(c.cfg.Out)
	}
	if c.cfg.copies() {
		c.saver.allocateCopies(c.state.pieces())
	}
}

// intact returns what a checkpoint of the present state holds, with its seals. The seals of what
// has none in memory are made before the guards compare it, so they cannot be those of a change. It
// is collective.
func (c *checkpointer) intact() (s runState, pieces []checkpoint.Piece, err error) {
	s.step, s.run, s.config = c.state.progress.Step, c.state.progress.Run, c.config
	if _, lost := seal.Check(s.config.text, &s.config.seal); lost {
		return s, nil, errors.New("the configuration has changed in memory: resume from the last checkpoint (--resume)")
	}
	for again := true; again; {
		if s.meta, err = sealText(c.state.snapshot()); err != nil {
			return s, nil, err
		}
		pieces = c.state.pieces()
		if again, err = c.memory.check(); err != nil {
			return s, nil, err
		}
		restored, err := c.stateGuard.beforeSave()
		if err != nil {
			return s, nil, err
		}
		again = again || restored
	}
	return s, pieces, nil
}

// save saves the state between two steps. It waits for the last save of a run. An earlier save that
// fails raises an alarm, and the next may succeed. failed says why there is no checkpoint, if that
// is known already; err ends the run. It is collective.
func (c *checkpointer) save(last bool) (failed, err error) {
	defer c.tracer.during(traceSave)()
	begin := time.Now()
	if err := c.wait(); err != nil {
		return nil, err
	}
	s, pieces, err := c.intact()
	if err != nil {
		return nil, err
	}
	if c.lead {
		c.clock.saved, c.clock.again = c.clock.now(), false
	}
	// The record is written to disk before the checkpoint of the same step. If that fails, the
	// ranks agree on it as on any other failure.
	c.saver.start(s, pieces, c.recorder.flush(), begin, last)
	if c.cfg.copies() && !last {
		return nil, nil
	}
	return c.finish(c.saver.wait())
}

// saveIfDue saves the state after the last step if a save is due.
func (c *checkpointer) saveIfDue() error {
	step := c.state.progress.Step
	if !due(c.cfg.SaveEvery.Steps(), step) && !c.timeIsUp {
		return nil
	}
	c.step, c.timeIsUp = step, false
	_, err := c.save(false)
	return err
}

// repeat saves the state that the vaults hold if a save is due, because the ranks may have failed
// before they saved it.
func (c *checkpointer) repeat() error {
	c.step = -1
	if c.state.progress.Step >= c.cfg.Steps {
		return nil
	}
	return c.saveIfDue()
}

// wait waits for the save in progress, if there is one.
func (c *checkpointer) wait() error {
	if c.saver.pending == nil {
		return nil
	}
	_, err := c.finish(c.saver.wait())
	return err
}

// poll reports the save in progress if it has ended.
func (c *checkpointer) poll() error {
	result, ok := c.saver.poll()
	if !ok {
		return nil
	}
	_, err := c.finish(result)
	return err
}

// close is called with the run's error when it ends: nothing may be writing when this rank returns.
func (c *checkpointer) close(err error) error {
	defer c.saver.close()
	if errors.As(err, new(*collective.AbortError)) {
		c.saver.cancel() // without the failed rank it cannot complete
	}
	return cmp.Or(err, c.wait())
}

// finish reports the end of a save. failed says why there is no checkpoint; err says that the ranks
// cannot continue.
func (c *checkpointer) finish(r saveResult) (failed, err error) {
	step := r.state.step
	if r.broken != nil {
		return nil, fmt.Errorf("saving the checkpoint of step %d: %w", step, r.broken)
	}
	if !c.lead {
		return r.failed, nil
	}
	for _, text := range r.changed {
		c.alarms.add(Alarm{Step: step, Text: fmt.Sprintf("the checkpoint of step %d: %s", step, text)})
	}
	if r.failed == nil {
		if c.tracer.open && c.cfg.copies() {
			from := r.begin.Sub(c.tracer.begin)
			c.tracer.add(traceWriting, from, from+r.lag)
		}
		c.report.Saved(Saved{Step: step, Path: filepath.Join(c.cfg.Out, fmt.Sprintf("step-%08d", step)), Stall: r.stall, Lag: r.lag})
	} else if !r.last {
		c.clock.again = errors.Is(r.failed, checkpoint.ErrChanged)
		c.alarms.add(Alarm{Step: step, Text: fmt.Sprintf("the checkpoint of step %d was not saved, training goes on: %v", step, r.failed)})
	}
	if r.untidy != nil {
		c.alarms.add(Alarm{Step: step, Text: fmt.Sprintf("after saving the checkpoint of step %d: %v", step, r.untidy)})
	}
	return r.failed, nil
}
