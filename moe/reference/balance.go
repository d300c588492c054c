package reference

import (
	"math"
	"strings"
)

// The losses of router logits.
const (
	loadBalance     = "load_balance"
	sequenceBalance = "sequence_balance"
	zLoss           = "z_loss"
)

// balance is a loss of router logits:
//
//	load_balance      experts · Σ_e f_e·P_e: f_e choices of e per token, P_e its mean probability,
//	                  over all tokens of all layers given. Source: arXiv 2101.03961, (4) to (6).
//	sequence_balance  the mean over sequences of experts/k · Σ_e f_e·P_e, with probabilities that
//	                  add up to one. Source: arXiv 2412.19437, (17) to (20).
//	z_loss            the mean of (log Σ exp logits)². Source: arXiv 2202.08906, (5).
//
// Only the probabilities have a gradient. Padding does not count.
func (f *formula) balance(m *Module, in []*node) []*node {
	var total *node
	add := func(y *node) {
		if total == nil {
			total = y
		} else {
			total = f.add(total, y, 1)
		}
	}
	counted, tokens := f.counted(in[0].rows)
	if m.formula == zLoss {
		for _, x := range in {
			add(f.weighted(f.square(f.logSumExp(x)), func(r, _ int) float64 { return counted[r] / tokens }))
		}
		return []*node{total}
	}
	sequence := func(r int) int {
		if m.formula != sequenceBalance || f.is("balance_over_batch") {
			return 0
		}
		return r / f.batch.Seq
	}
	per := 1.0
	switch {
	case m.formula != sequenceBalance:
	case f.is("balance_over_batch"):
		per = float64(f.TopK)
	default:
		per = float64(f.TopK * f.batch.Batch)
	}
	switch {
	case f.is("balance_per_choice"):
		per *= float64(f.TopK)
	case f.is("balance_not_per_choice"):
		per /= float64(f.TopK)
	}
	counts, rows := map[[2]int]float64{}, map[int]float64{} // of a sequence's choices and tokens
	probabilities := make([]*node, len(in))
	for i, x := range in {
		gate := strings.TrimSuffix(m.Inputs[i].Name, ".logits")
		probabilities[i] = f.probabilities(x)
		chosen := f.replayed(gate)
		if chosen == nil {
			chosen = f.choose(gate, probabilities[i])
		}
		for r, c := range counted {
			rows[sequence(r)] += c
			for _, e := range chosen[r*f.TopK : (r+1)*f.TopK] {
				counts[[2]int{sequence(r), e}] += c
			}
		}
	}
	for _, p := range probabilities {
		add(f.weighted(p, func(r, e int) float64 {
			n := math.Max(rows[sequence(r)], 1)
			return counted[r] * float64(f.Experts) * counts[[2]int{sequence(r), e}] / (n * n) / per
		}))
	}
	return []*node{total}
}

// counted returns 1 for each token that is no padding, and how many there are.
func (f *formula) counted(rows int) (each []float64, total float64) {
	each = make([]float64, rows)
	for i := range each {
		if f.batch.Mask == nil || f.batch.Mask[i] != 0 || f.is("balance_padding_counted") {
			each[i] = 1
			total++
		}
	}
	return each, math.Max(total, 1)
}

// probabilities returns scores that add up to one for each token.
func (f *formula) probabilities(logits *node) *node {
	scores := f.scores(logits)
	if f.Softmax {
		return scores
	}
	return f.mul(scores, f.reciprocal(f.sum(scores)))
}

// weighted returns Σ w·x over all elements.
func (f *formula) weighted(x *node, w func(r, i int) float64) *node {
	weights := make([]float64, len(x.data))
	for i := range weights {
		weights[i] = w(i/x.cols, i%x.cols)
	}
	terms := f.mul(x, f.constant(x.rows, x.cols, weights, x.dtype))
	return f.sum(f.reshape(terms, len(x.data)))
}

// logSumExp returns log Σ exp(x) of each row.
func (f *formula) logSumExp(x *node) *node {
	x = f.cast(x, FP32)
	p := make([]float64, len(x.data))
	y := f.each(x.rows, 1, x.dtype, func(r int, y []float64) { y[0] = softmaxRow(p[r*x.cols:(r+1)*x.cols], x.row(r), x.dtype) })
	return f.derive(y, func() {
		f.give(x, func(r int, g []float64) {
			for i := range g {
				g[i] = p[r*x.cols+i] * y.grad[r]
			}
		})
	})
}
