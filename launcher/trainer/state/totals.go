package state

// The sums over the passes of a step.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Totals sums the results of the ranks' passes. stop is positive if any rank wants to stop, save if
// a save by time is due, and damaged if activations or gradients of a rank have changed in memory.
type Totals struct {
	Loss, tokens, mtp, mtpTokens, balance, index, dropped, Stop, Save, Damaged float64
}

// totalsNumbers is the number of fields of totals.
const totalsNumbers = 10

// Add adds the loss of a pass.
func (t *Totals) Add(l moe.Loss) {
	t.Loss += l.Sum
	t.tokens += float64(l.Tokens)
	t.mtp += l.Ahead
	t.mtpTokens += float64(l.AheadTokens)
	t.balance += l.Balance
	t.index += l.Index
	t.dropped += float64(l.Dropped)
}

// Step describes a step by its sums. Losses are means per token.
func (t Totals) Step() events.Step {
	return events.Step{
		Loss: record.Number(t.Loss / max(t.tokens, 1)), MTPLoss: record.Number(t.mtp / max(t.mtpTokens, 1)),
		Balance: record.Number(t.balance), IndexLoss: record.Number(t.index), Dropped: int64(t.dropped),
	}
}

// Sum returns the totals of all ranks. It is collective.
func (t Totals) Sum(ex *tensor.Exec, c *collective.Comm) (Totals, error) {
	defer ex.Enter(ex.Enter(profile.Collectives))
	buf := [totalsNumbers]float64{t.Loss, t.tokens, t.mtp, t.mtpTokens, t.balance, t.index, t.dropped, t.Stop, t.Save, t.Damaged}
	if err := collective.AllReduce(c, buf[:], collective.Sum); err != nil {
		return t, fmt.Errorf("summing the loss: %w", err)
	}
	return Totals{buf[0], buf[1], buf[2], buf[3], buf[4], buf[5], buf[6], buf[7], buf[8], buf[9]}, nil
}
