package trainer

// The progress of a run and its memory of the last steps.

import (
	"spmoe/datasets"
	"spmoe/launcher/record"
)

// progress is the part of a checkpoint that is not in tensors.
type progress struct {
	Step           int            `json:"step"`
	OptimizerSteps int            `json:"optimizer_steps"`
	Skipped        int            `json:"skipped_steps"` // their number
	SkippedSteps   []int          `json:"skipped"`       // the last 1000 of them
	Tokens         int64          `json:"tokens"`
	Loader         datasets.State `json:"loader"`
	FirstTrain     record.Number  `json:"first_train_loss"`
	FirstHeldOut   record.Number  `json:"first_held_out_loss"`
	Recent         recent         `json:"recent_losses"`
	Norms          norms          `json:"recent_norms"` // of gradients
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
