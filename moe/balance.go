package moe

import "spmoe/tensor"

// The sequence-wise balance loss of DeepSeek-V3 (arXiv:2412.19437, 2.1.2): for each sequence
// alpha·Σ_i f_i·P_i with f_i = E/(K·T)·(tokens that chose expert i) and P_i the mean over the
// tokens of score_i/Σ_j score_j. Only P has a gradient. f counts the choices made, the
// selection bias included.

// balanceLoss adds to each of this rank's sequences, unless losses is nil, its part of the mean over all sequences, of which there are
// globalSequences, and sets dscores: [tokens, experts] to its gradient.
func (r *router) balanceLoss(losses []sequenceLoss, dscores tensor.Tensor, seq, globalSequences int) {
	dscores.Zero()
	alpha := r.cfg.BalanceAlpha
	if alpha == 0 {
		return
	}
	for i := range dscores.Dim(0) / seq {
		lo := i * seq
		loss := r.sequenceLoss(dscores.Slice(lo, lo+seq), lo, seq, alpha/float64(globalSequences))
		if losses != nil {
			losses[i].balance += loss
		}
	}
}

// sequenceLoss handles the sequence of tokens [lo, lo+seq).
func (r *router) sequenceLoss(dscores tensor.Tensor, lo, seq int, alpha float64) float64 {
	share := r.share
	clear(share)
	for _, e := range r.saved.experts.Slice(lo, lo+seq).I32() {
		share[e]++
	}
	// Now counts; then alpha·f/T, the gradient of the normalised score of any token.
	for e := range share {
		share[e] *= alpha * float64(r.cfg.Experts) / float64(r.cfg.TopK*seq) / float64(seq)
	}
	var loss float64
	for t := range seq {
		scores := r.saved.scores.Index(lo + t).F32()
		total := float64(sum(scores))
		var inner float64
		for e, s := range scores {
			inner += share[e] * float64(s)
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

// balance moves the selection biases against the load since the last call: up by speed for
// an expert below the mean, down above it, centred so that their sum stays what it was.
// load holds the counts of all ranks.
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
