package trainer

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/weights"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// A checkpoint holds FP32 master weights, the vectors of the optimizer's rule, the routers'
// selection biases, the loader's position and the configuration: all that the next step depends on.

// pieces lists a piece's tensors under their checkpoint names.
func pieces(p optim.Piece) (all []checkpoint.Piece) {
	for _, v := range p.State {
		c := checkpoint.Piece{Name: v.Name + "/" + p.Param.Name, Shape: p.Param.Dims, Offset: int64(p.Offset)}
		if v.Data.DType() == tensor.BF16 {
			c.BF16 = v.Data.Bytes()
		} else {
			c.Data = v.Data.F32()
		}
		all = append(all, c)
	}
	return all
}

// biases lists the selection biases, which every rank holds.
func (r *rank) biases() []checkpoint.Piece {
	var all []checkpoint.Piece
	for _, route := range r.routings {
		all = append(all, checkpoint.Piece{Name: weights.BiasPrefix + route.Name, Shape: route.Bias.Dims(), Data: route.Bias.F32()})
	}
	return all
}

// save saves the state between two steps. The last save of a run is waited for, and must succeed; of another one that
// fails an alarm is given, and the next may do better. An error ends the run. It is collective.
func (r *rank) save(last bool) error {
	defer r.tracer.during(traceSave)()
	begin := time.Now()
	if err := r.awaitSave(); err != nil {
		return err
	}
	if _, err := r.checkMemory(); err != nil { // what is damaged must not be saved
		return err
	}
	s, err := r.state()
	if err != nil {
		return err
	}
	// The record is on disk before the checkpoint of the same step; that it is not is agreed on like any other failure.
	r.saver.start(s, r.pieces(), r.settle(r.recording.out.Flush()), begin, last)
	if r.cfg.copies() && !last {
		return nil
	}
	failed, err := r.landed(r.saver.wait())
	if err == nil && last && failed != nil {
		err = fmt.Errorf("saving the checkpoint of step %d, the last of this run: %w", s.progress.Step, failed)
	}
	return err
}

// awaitSave waits for the save in flight, if there is one.
func (r *rank) awaitSave() error {
	if r.saver.flight == nil {
		return nil
	}
	_, err := r.landed(r.saver.wait())
	return err
}

// pollSave reports on the save in flight if it has ended.
func (r *rank) pollSave() error {
	l, ok := r.saver.poll()
	if !ok {
		return nil
	}
	_, err := r.landed(l)
	return err
}

// endSaving is called when the run ends, with its error: nothing may be writing when this rank returns.
func (r *rank) endSaving(err error) error {
	defer r.saver.close()
	if errors.As(err, new(*collective.AbortError)) {
		r.saver.cancel() // without the failed rank nothing comes of it
	}
	return cmp.Or(err, r.awaitSave())
}

// landed reports how a save has ended. failed says why there is no checkpoint; an error, that the ranks cannot go on.
func (r *rank) landed(l landing) (failed, err error) {
	step := l.state.progress.Step
	if l.broken != nil {
		return nil, fmt.Errorf("saving the checkpoint of step %d: %w", step, l.broken)
	}
	if !r.lead() {
		return l.failed, nil
	}
	if l.failed == nil {
		if r.tracer.open && r.cfg.copies() {
			from := l.begin.Sub(r.tracer.begin)
			r.tracer.add(traceWriting, from, from+l.lag)
		}
		r.job.report.Saved(Saved{Step: step, Path: filepath.Join(r.cfg.Out, fmt.Sprintf("step-%08d", step)), Stall: l.stall, Lag: l.lag})
	} else if !l.last {
		r.tell(Alarm{step, fmt.Sprintf("the checkpoint of step %d was not saved, training goes on: %v", step, l.failed)})
	}
	if l.untidy != nil {
		r.tell(Alarm{step, fmt.Sprintf("after saving the checkpoint of step %d: %v", step, l.untidy)})
	}
	return l.failed, nil
}

// state is the trainer's part of the state between two steps.
func (r *rank) state() (s runState, err error) {
	s.progress = r.here()
	s.progress.Recent = slices.Clone(r.progress.Recent)
	s.config, err = ConfigTOML(r.cfg)
	return s, err
}

// here is the progress of this rank, complete.
func (r *rank) here() progress {
	p := r.progress
	p.OptimizerSteps, p.Loader = r.optim.Steps(), r.loader.State()
	return p
}

// saveAgain saves the state that the vaults kept, if it is one to be saved: the ranks may have been about to. It returns the step that
// was saved, -1 if none was.
func (r *rank) saveAgain() (int, error) {
	if step := r.progress.Step; every(r.cfg.SaveEvery, step) && step < r.cfg.Steps {
		return step, r.save(false)
	}
	return -1, nil
}

// pieces lists all that this rank saves, where it is after this step.
func (r *rank) pieces() (mine []checkpoint.Piece) {
	for p := range r.optim.Pieces {
		mine = append(mine, pieces(p)...)
	}
	if r.lead() {
		mine = append(mine, r.biases()...)
	}
	return mine
}

// restore sets this rank to the state of the checkpoint that the job resumes.
func (r *rank) restore() error {
	from := r.job.resume
	var want []checkpoint.Piece
	for p := range r.optim.Pieces {
		want = append(want, pieces(p)...)
	}
	for _, p := range append(want, r.biases()...) {
		if err := from.ReadInto(p); err != nil {
			return fmt.Errorf("%s: %w", from.Path(), err)
		}
	}
	// Ranks that are processes open it each for itself.
	steps := [2]int64{int64(r.progress.Step), -int64(r.progress.Step)}
	if err := collective.AllReduce(r.comm, steps[:], collective.Min); err != nil {
		return err
	}
	if steps[0] != -steps[1] {
		return fmt.Errorf("%s: ranks resume from steps %d to %d: give --out a folder that all of them can read", from.Path(), steps[0], -steps[1])
	}
	r.optim.SetSteps(r.progress.OptimizerSteps)
	if err := r.loader.Restore(r.progress.Loader); err != nil {
		return fmt.Errorf("%s: %w", from.Path(), err)
	}
	return r.optim.Publish()
}
