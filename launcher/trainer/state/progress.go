// Package state is what a rank holds between steps: progress, data, the biases of routers, alarms,
// and the vault in which a replacement finds them.
package state

// The progress of a run and its memory of the last steps.

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor/cpu"
)

const (
	normSteps      = 64  // window of the median
	leastNorms     = 32  // minimum number of known norms
	SkipSteps      = 100 // window in which skipped steps are counted
	rememberedSkip = 1000
)

// Norms holds the gradient norms of the last steps.
type Norms []record.Number

// Add appends the norm of a step and forgets the oldest.
func (n *Norms) Add(norm float64) {
	*n = append(*n, record.Number(norm))
	*n = (*n)[max(0, len(*n)-normSteps):]
}

// Median returns the lower median. ok is false if too few norms are known.
func (n Norms) Median() (m float64, ok bool) {
	if len(n) < leastNorms {
		return 0, false
	}
	return float64(slices.Sorted(slices.Values(n))[(len(n)-1)/2]), true
}

// Skip records that a step has changed no weight.
func (p *Progress) Skip(step int) {
	p.Skipped++
	p.SkippedSteps = append(p.SkippedSteps, step)
	p.SkippedSteps = p.SkippedSteps[max(0, len(p.SkippedSteps)-rememberedSkip):]
}

// Progress is the part of a checkpoint that is not in tensors.
type Progress struct {
	Run            string         `json:"-"` // the run's id, which has a place of its own in checkpoints
	Step           int            `json:"step"`
	OptimizerSteps int            `json:"optimizer_steps"`
	Skipped        int            `json:"skipped_steps"` // their number
	SkippedSteps   []int          `json:"skipped"`       // the last 1000 of them
	Tokens         int64          `json:"tokens"`
	Loader         datasets.State `json:"loader"`

	Before *datasets.State `json:"before,omitempty"` // where the run left other text for that of the loader

	FirstTrain   record.Number `json:"first_train_loss"`
	FirstHeldOut record.Number `json:"first_held_out_loss"`
	Recent       Recent        `json:"recent_losses"`
	Norms        Norms         `json:"recent_norms"`   // of gradients
	Tier         cpu.Tier      `json:"tier,omitempty"` // of the instructions of the last step
	Text         string        `json:"text,omitempty"` // describes the built-in text, if it was trained on
}

// BeginData makes the next step read the first sample of other text.
func (p *Progress) BeginData(fingerprint string) {
	was := p.Loader
	p.Before, p.Loader.Fingerprint, p.Loader.Start = &was, fingerprint, was.Pos
}

// DataChange describes the change if the next step is the first on other text; empty: it is not.
func (p Progress) DataChange() string {
	if p.Before == nil || p.Loader.Start != p.Tokens/int64(p.Loader.Seq) {
		return ""
	}
	return fmt.Sprintf("other data from step %d on: %.12s from its start, after %.12s; validation losses are of its own validation part from then on, and do not compare with those before",
		p.Step+1, p.Loader.Fingerprint, p.Before.Fingerprint)
}

// ReadProgress returns the progress in a checkpoint, which must agree with the rest of it.
func ReadProgress(from *checkpoint.Reader) (p Progress, err error) {
	if err := from.Meta(&p); err != nil {
		return p, fmt.Errorf("%s: %w", from.Path(), err)
	}
	if err := p.check(from.Step()); err != nil {
		return p, fmt.Errorf("%s: the trainer's state in its manifest contradicts itself: %w: use another checkpoint", from.Path(), err)
	}
	return p, nil
}

// CheckState returns an error unless a run can load a checkpoint: its progress can be that of a
// run, and its tensors are those of its configuration.
func CheckState(from *checkpoint.Reader) error {
	if _, err := ReadProgress(from); err != nil {
		return err
	}
	want, err := config.Contents(from.ConfigTOML())
	if err != nil {
		return fmt.Errorf("%s: config.toml: %w", from.Path(), err)
	}
	if err := from.Match(want); err != nil {
		return fmt.Errorf("%s is a %w: by its configuration, %w", from.Path(), checkpoint.ErrDamaged, err)
	}
	return nil
}

// check compares the numbers of a progress with the step of its checkpoint and with each other.
func (p Progress) check(step int64) error {
	switch {
	case int64(p.Step) != step || p.Step < 0 || p.Step > config.MaxCount:
		return fmt.Errorf("it is of step %d, the checkpoint of step %d", p.Step, step)
	case p.OptimizerSteps < 0 || p.OptimizerSteps > p.Step:
		return fmt.Errorf("%d optimizer steps within %d steps", p.OptimizerSteps, p.Step)
	case p.Skipped < 0 || p.Skipped > p.Step || len(p.SkippedSteps) > min(p.Skipped, rememberedSkip):
		return fmt.Errorf("%d skipped steps, with the numbers of %d, within %d steps", p.Skipped, len(p.SkippedSteps), p.Step)
	case len(p.Recent) > recentSteps || len(p.Norms) > normSteps:
		return fmt.Errorf("%d recent losses and %d norms: at most %d and %d are possible", len(p.Recent), len(p.Norms), recentSteps, normSteps)
	case p.Tokens < 0 || p.Loader.Seq < 1 || p.Tokens%int64(p.Loader.Seq) != 0 || p.Tokens/int64(p.Loader.Seq) != p.Loader.Pos:
		return fmt.Errorf("%d tokens, but the loader is at sample %d of %d tokens each", p.Tokens, p.Loader.Pos, p.Loader.Seq)
	}
	for i, skipped := range p.SkippedSteps {
		if skipped < 1 || skipped > p.Step || i > 0 && skipped <= p.SkippedSteps[i-1] {
			return fmt.Errorf("step %d among the skipped steps of %d", skipped, p.Step)
		}
	}
	return nil
}

// Recent holds the losses of the last steps. Their mean is steadier than the loss of one batch.
type Recent []record.Number

const recentSteps = 10

// Add appends the loss of a step and forgets the oldest.
func (l *Recent) Add(loss float64) {
	*l = append(*l, record.Number(loss))
	*l = (*l)[max(0, len(*l)-recentSteps):]
}

// Mean returns the mean of the losses; NaN if there are none.
func (l Recent) Mean() float64 {
	var sum float64
	for _, loss := range l {
		sum += float64(loss)
	}
	return sum / float64(len(l))
}

// Last returns the last loss; 0 if there are none.
func (l Recent) Last() float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[len(l)-1])
}

// Clone returns a deep copy of the progress.
func (p Progress) Clone() Progress {
	p.Recent, p.Norms, p.SkippedSteps = slices.Clone(p.Recent), slices.Clone(p.Norms), slices.Clone(p.SkippedSteps)
	return p
}

// SkipError ends a run that has skipped too many steps. Restarting it unchanged would not help.
type SkipError struct {
	Steps []int // within the last 100
	Most  int
}

// Error implements error.
func (e *SkipError) Error() string {
	return fmt.Sprintf("steps %s were skipped, more than %d of %d (guard.skips): the weights of the last good step are saved; lower optimizer.lr, or leave the data of these steps out",
		strings.Trim(fmt.Sprint(e.Steps), "[]"), e.Most, SkipSteps)
}

// TooManySkips returns a [*SkipError] if the last step is skipped and exceeds the maximum.
func (p *Progress) TooManySkips(most int) error {
	from, _ := slices.BinarySearch(p.SkippedSteps, p.Step-SkipSteps+1)
	recent := p.SkippedSteps[from:]
	if len(recent) <= most || recent[len(recent)-1] != p.Step {
		return nil
	}
	return &SkipError{slices.Clone(recent), most}
}
