package trainer

// The progress of a run and its memory of the last steps.

import (
	"fmt"

	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/tensor/cpu"
)

// progress is the part of a checkpoint that is not in tensors.
type progress struct {
	Run            string         `json:"-"` // the run's id, which has a place of its own in checkpoints
	Step           int            `json:"step"`
	OptimizerSteps int            `json:"optimizer_steps"`
	Skipped        int            `json:"skipped_steps"` // their number
	SkippedSteps   []int          `json:"skipped"`       // the last 1000 of them
	Tokens         int64          `json:"tokens"`
	Loader         datasets.State `json:"loader"`
	FirstTrain     record.Number  `json:"first_train_loss"`
	FirstHeldOut   record.Number  `json:"first_held_out_loss"`
	Recent         recent         `json:"recent_losses"`
	Norms          norms          `json:"recent_norms"`   // of gradients
	Tier           cpu.Tier       `json:"tier,omitempty"` // of the instructions of the last step
	Text           string         `json:"text,omitempty"` // describes the built-in text, if it was trained on
}

// readProgress returns the progress in a checkpoint, which must agree with the rest of it.
func readProgress(from *checkpoint.Reader) (p progress, err error) {
	if err := from.Meta(&p); err != nil {
		return p, fmt.Errorf("%s: %w", from.Path(), err)
	}
	if err := p.check(from.Step()); err != nil {
		return p, fmt.Errorf("%s: the trainer's state in its manifest contradicts itself: %w: use another checkpoint", from.Path(), err)
	}
	return p, nil
}

// CheckState returns an error if the trainer's state in a checkpoint cannot be that of a run.
func CheckState(from *checkpoint.Reader) error {
	_, err := readProgress(from)
	return err
}

// check compares the numbers of a progress with the step of its checkpoint and with each other.
func (p progress) check(step int64) error {
	switch {
	case int64(p.Step) != step || p.Step < 0 || p.Step > maxCount:
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

// recent holds the losses of the last steps. Their mean is steadier than the loss of one batch.
type recent []record.Number

const recentSteps = 10

func (l *recent) add(loss float64) {
	*l = append(*l, record.Number(loss))
	*l = (*l)[max(0, len(*l)-recentSteps):]
}

// mean returns the mean of the losses; NaN if there are none.
func (l recent) mean() float64 {
	var sum float64
	for _, loss := range l {
		sum += float64(loss)
	}
	return sum / float64(len(l))
}

// last returns the last loss; 0 if there are none.
func (l recent) last() float64 {
	if len(l) == 0 {
		return 0
	}
	return float64(l[len(l)-1])
}
