package trainer

import (
	"encoding/json"
	"math"

	"spmoe/datasets"
)

// progress is the trainer's part of a checkpoint.
type progress struct {
	Step           int            `json:"step"`
	OptimizerSteps int            `json:"optimizer_steps"`
	Skipped        int            `json:"skipped_steps"`
	Tokens         int64          `json:"tokens"`
	Loader         datasets.State `json:"loader"`
	FirstTrain     number         `json:"first_train_loss"`
	FirstHeldOut   number         `json:"first_held_out_loss"`
	Recent         recent         `json:"recent_losses"`
}

// recent holds the losses of the last steps, for a mean that is steadier than one batch.
type recent []number

const recentSteps = 10

func (l *recent) add(loss float64) {
	*l = append(*l, number(loss))
	*l = (*l)[max(0, len(*l)-recentSteps):]
}

// mean returns the mean of the losses held; NaN if there are none.
func (l recent) mean() float64 {
	var sum float64
	for _, loss := range l {
		sum += float64(loss)
	}
	return sum / float64(len(l))
}

// number is a float64 whose NaN and infinities, which JSON lacks, are null and come back as
// NaN: a run whose loss is one must still be able to save.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if x := float64(n); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}
