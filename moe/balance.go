package moe

import (
	"math"

	"spmoe/tensor"
	"spmoe/tensor/alloc"
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
		s.share = alloc.Make[float64](n * r.cfg.Experts)
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
			b.losses[i].addBalance(loss)
		}
	}
}

// addBalance adds the loss of a layer, rounded: see Loss.
func (l *sequenceLoss) addBalance(loss float64) {
	l.balance += math.RoundToEven(loss*0x1p48) * 0x1p-48
}

// sequence handles the tokens of sequence i and returns its loss.
func (b balanceArgs) sequence(i int) (loss float64) {
	lo, share := i*b.seq, b.share[i*b.cfg.Experts:][:b.cfg.Experts]
	clear(share)
	for _, e := range b.experts.Slice(lo, lo+b.seq).I32() {
		share[e]++
	}
	b.weigh(share)
	for t := range b.seq {
		loss += b.token(lo+t, share)
	}
	return loss
}

// weigh turns the counts of a sequence into alpha·f/T, the gradient of the normalized score of any
// token.
func (b balanceArgs) weigh(share []float64) {
	for e := range share {
		share[e] *= b.alpha * float64(b.cfg.Experts) / float64(b.cfg.TopK*b.seq) / float64(b.seq)
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

// contextBalance is balanceLoss for a part of a sequence. The counts are those of all parts, and
// one rank adds up the losses of all tokens.
func (r *router) contextBalance(p phase, s *routerState, losses []sequenceLoss, dscores tensor.Tensor) {
	tensor.Zero(p.ex, dscores)
	if r.cfg.BalanceAlpha == 0 {
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	b := balanceArgs{r, s, losses, dscores, p.batch.Seq, r.cfg.BalanceAlpha / float64(p.batch.GlobalSequences)}
	counts, each := p.ex.New(tensor.INT32, r.cfg.Experts), p.ex.New(tensor.UINT8, 8*p.cp.tokens)
	if len(s.share) < r.cfg.Experts {
		s.share = alloc.Make[float64](r.cfg.Experts)
	}
	share := s.share[:r.cfg.Experts]
	clear(share)
	if !p.ex.Dry() {
		counts.Zero()
		for _, e := range s.experts.I32() {
			counts.I32()[e]++
		}
	}
	p.gather(counts, false, func(of tensor.Tensor) {
		for e, n := range of.I32() {
			share[e] += float64(n)
		}
	})
	if !p.ex.Dry() {
		b.weigh(share)
		of := float64s(each.Bytes())
		for t := range of {
			of[t] = b.token(t, share)
		}
	}
	if losses == nil {
		return
	}
	loss := 0.0 // on the first rank
	p.gather(each, true, func(of tensor.Tensor) {
		for _, one := range float64s(of.Bytes()) {
			loss += one
		}
	})
	losses[0].addBalance(loss)
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
