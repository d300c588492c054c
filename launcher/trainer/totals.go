package trainer

// The sums over the passes of a step.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// totals sums the results of the ranks' passes. stop is positive if any rank wants to stop, save if
// a save by time is due, and damaged if activations or gradients of a rank have changed in memory.
type totals struct {
	loss, tokens, mtp, mtpTokens, balance, dropped, stop, save, damaged float64
}

// totalsNumbers is the number of fields of totals.
const totalsNumbers = 9

func (t *totals) add(l moe.Loss) {
	t.loss += l.Sum
	t.tokens += float64(l.Tokens)
	t.mtp += l.MTP
	t.mtpTokens += float64(l.MTPTokens)
	t.balance += l.Balance
	t.dropped += float64(l.Dropped)
}

// meanLoss returns the mean loss per token.
func (t totals) meanLoss() float64 { return t.loss / max(t.tokens, 1) }

// step describes a step by its sums. Losses are means per token.
func (t totals) step() Step {
	return Step{
		Loss: record.Number(t.meanLoss()), MTPLoss: record.Number(t.mtp / max(t.mtpTokens, 1)),
		Balance: record.Number(t.balance), Dropped: int64(t.dropped),
	}
}

// sum returns the totals of all ranks. It is collective.
func (t totals) sum(ex *tensor.Exec, c *collective.Comm) (totals, error) {
	defer ex.Enter(ex.Enter(profile.Collectives))
	buf := [totalsNumbers]float64{t.loss, t.tokens, t.mtp, t.mtpTokens, t.balance, t.dropped, t.stop, t.save, t.damaged}
	if err := collective.AllReduce(c, buf[:], collective.Sum); err != nil {
		return t, fmt.Errorf("summing the loss: %w", err)
	}
	return totals{buf[0], buf[1], buf[2], buf[3], buf[4], buf[5], buf[6], buf[7], buf[8]}, nil
}
