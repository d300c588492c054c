package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/alloc"
)

// The sequence-wise balance loss of DeepSeek-V3 (arXiv:2412.19437, 2.1.2). For each sequence it is
// alpha·Σ_i f_i·P_i with f_i = E/(K·T)·(tokens that chose expert i) and P_i the mean over the
// tokens of score_i/Σ_j score_j. Only P has a gradient. f counts the actual choices, which include
// the selection bias.

// balanceLoss adds to the loss of each sequence its share of the mean over the global batch, unless
// losses is nil. It sets dscores, [tokens, experts], to the gradient. Ranks that share a sequence
// count its choices together, and one of them adds up the losses of all tokens.
func (r *router) balanceLoss(p phase, s *routerState, losses []sequenceLoss, dscores tensor.Tensor) {
	tensor.Zero(p.ex, dscores)
	n := len(p.sequences)
	if r.cfg.BalanceAlpha == 0 || n == 0 || r.table.Valid() {
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	tokens := dscores.Dim(0)
	counts := p.ex.New(tensor.INT32, n*r.cfg.Experts)
	each := p.ex.New(tensor.UINT8, 8*tokens)
	sums := p.ex.New(tensor.UINT8, 8*n)
	if len(s.share) < counts.Len() {
		s.share = alloc.Make[float64](counts.Len())
	}
	job := balanceArgs{r, s, dscores, float64s(each.Bytes()), p.batch.Seq, tokens / n, r.cfg.BalanceAlpha / float64(p.batch.GlobalSequences)}
	clear(s.share[:counts.Len()])
	if !p.ex.Dry() {
		counts.Zero()
		for i, e := range s.experts.I32() {
			counts.I32()[i/(job.here*r.cfg.TopK)*r.cfg.Experts+int(e)]++
		}
	}
	p.gather(counts, false, func(of tensor.Tensor) {
		for i, n := range of.I32() {
			s.share[i] += float64(n)
		}
	})
	tensor.Parallel(p.ex, n, r.work(tokens), job, balanceSequences)
	if losses == nil {
		return
	}
	if !p.ex.Dry() {
		sums.Zero()
	}
	p.gather(each, true, func(of tensor.Tensor) {
		for t, loss := range float64s(of.Bytes()) {
			float64s(sums.Bytes())[t/job.here] += loss
		}
	})
	for i := range losses {
		if !p.ex.Dry() {
			losses[i].balance += roundedPart(float64s(sums.Bytes())[i])
		}
	}
}

// balanceArgs are the arguments of balanceSequences.
type balanceArgs struct {
	*router
	*routerState
	dscores tensor.Tensor
	losses  []float64 // of each token of this rank
	seq     int       // tokens of a sequence
	here    int       // those on this rank
	alpha   float64
}

// balanceSequences handles the tokens of sequences [from, to) on this rank.
func balanceSequences(_ *tensor.Exec, b balanceArgs, from, to int) {
	for i := from; i < to; i++ {
		share := b.share[i*b.cfg.Experts:][:b.cfg.Experts]
		for e := range share { // alpha·f/T, the gradient of the normalized score of any token
			share[e] *= b.alpha * float64(b.cfg.Experts) / float64(b.cfg.TopK*b.seq) / float64(b.seq)
		}
		for t := i * b.here; t < (i+1)*b.here; t++ {
			b.losses[t] = b.token(t, share)
		}
	}
}

// token sets the gradient of a token's scores and returns its part of the loss.
func (b balanceArgs) token(t int, share []float64) (inner float64) {
	scores := b.scores.Index(t).F32()
	total := float64(sum(scores))
	for e, s := range scores {
		inner += float64(share[e] * float64(s)) // not fused on any CPU
	}
	inner /= total
	d := b.dscores.Index(t).F32()
	for e := range d {
		d[e] = float32((share[e] - inner) / total)
	}
	return inner
}

// balance moves the selection biases against the load since the last call: up by speed for an
// expert below the mean, down for one above it. It keeps the sum of the biases. load holds the
// counts of all ranks.
func (r *router) balance(load []int64) {
	if r.cfg.BiasSpeed == 0 || r.cfg.warmsUp() || r.table.Valid() {
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
