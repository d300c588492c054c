package moe

import (
	"math"

	"spmoe/tensor"
)

// The sequence-wise balance loss of DeepSeek-V3 (arXiv:2412.19437, 2.1.2). For each sequence it is
// alpha·Σ_i f_i·P_i with f_i = E/(K·T)·(tokens that chose expert i) and P_i the mean over the
// tokens of score_i/Σ_j score_j. Only P has a gradient. f counts the actual choices, which include
// the selection bias.

// balanceLoss adds to the loss of each of this rank's sequences its share of the mean over
// globalSequences sequences, unless losses is nil. It sets dscores, [tokens, experts], to the
// gradient.
func (r *router) balanceLoss(ex *tensor.Exec, s *routerState, losses []sequenceLoss, dscores tensor.Tensor, seq, globalSequences int) {
	tensor.Zero(ex, dscores)
	alpha := r.cfg.BalanceAlpha
	if alpha == 0 {
		return
	}
	job := balanceArgs{r, s, losses, dscores, seq, alpha / float64(globalSequences)}
	n := dscores.Dim(0) / seq
	if len(s.share) < n*r.cfg.Experts {
		s.share = make([]float64, n*r.cfg.Experts)
	}
	tensor.Parallel(ex, n, r.work(n*seq), job, balanceSequences)
}

// balanceArgs are the arguments of balanceSequences.
type balanceArgs struct {
	*router
	*routerState
	losses  []sequenceLoss
	dscores tensor.Tensor
	seq     int
	alpha   float64
}

// balanceSequences handles sequences [from, to).
func balanceSequences(_ *tensor.Exec, b balanceArgs, from, to int) {
	for i := from; i < to; i++ {
		loss := b.sequence(i)
		if b.losses != nil {
			b.losses[i].balance += math.RoundToEven(loss*0x1p48) * 0x1p-48 // see Loss
		}
	}
}

// sequence handles the tokens of sequence i and returns its loss.
func (b balanceArgs) sequence(i int) float64 {
	seq, lo, dscores := b.seq, i*b.seq, b.dscores.Slice(i*b.seq, (i+1)*b.seq)
	share := b.share[i*b.cfg.Experts:][:b.cfg.Experts]
	clear(share)
	for _, e := range b.experts.Slice(lo, lo+seq).I32() {
		share[e]++
	}
	// It holds counts first and then alpha·f/T, the gradient of the normalized score of any token.
	for e := range share {
		share[e] *= b.alpha * float64(b.cfg.Experts) / float64(b.cfg.TopK*seq) / float64(seq)
	}
	var loss float64
	for t := range seq {
		scores := b.scores.Index(lo + t).F32()
		total := float64(sum(scores))
		var inner float64
		for e, s := range scores {
			inner += float64(share[e] * float64(s)) // not fused on any CPU
		}
		inner /= total
		loss += inner
		d := dscores.Index(t).F32()
		for e := range d {
			d[e] = float32((share[e] - inner) / total)
		}
	}
	return loss
}

// balance moves the selection biases against the load since the last call: up by speed for an
// expert below the mean, down for one above it. It keeps the sum of the biases. load holds the
// counts of all ranks.
func (r *router) balance(load []int64) {
	if r.cfg.BiasSpeed == 0 {
		return
	}
	var total int64
	for _, n := range load {
		total += n
	}
	experts := int64(len(load))
	var drift float64
	step := func(n int64) float64 {
		switch {
		case n*experts < total:
			return r.cfg.BiasSpeed
		case n*experts > total:
			return -r.cfg.BiasSpeed
		}
		return 0
	}
	for _, n := range load {
		drift += step(n)
	}
	drift /= float64(experts)
	bias := r.bias.F32()
	for e, n := range load {
		bias[e] += float32(step(n) - drift)
	}
}
