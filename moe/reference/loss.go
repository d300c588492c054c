package reference

import "math"

// The losses of router logits.
const (
	loadBalance     = "load_balance"
	sequenceBalance = "sequence_balance"
	zLoss           = "z_loss"
)

// head is the loss of hidden states: of norm(x)·wᵀ.
func (f *formula) head(x *node) *node {
	name := "lm_head.weight"
	if f.Tied {
		name = "model.embed_tokens.weight"
	}
	return f.loss(f.linear(f.norm("model.norm", x), f.param(name), nil))
}

// loss is the cross-entropy -Σ w·log softmax(logits)[target], in FP32. w is 1 over the number of
// targets.
func (f *formula) loss(logits *node) *node {
	x := f.cast(logits, FP32)
	targets, weights := f.targets()
	y := f.node(1, 1, x.dtype)
	for r, target := range targets {
		if target >= 0 && int(target) < x.cols {
			p := make([]float64, x.cols)
			y.data[0] += weights[r] * (softmaxRow(p, x.row(r)) - x.row(r)[target])
		}
	}
	y.store.roundAll(y.data)
	return f.derive(y, func() {
		f.give(x, func(r int, g []float64) {
			if targets[r] < 0 {
				return
			}
			softmaxRow(g, x.row(r))
			g[targets[r]]--
			for i := range g {
				g[i] *= y.grad[0] * weights[r]
			}
		})
	})
}

// targets returns the token that each one predicts, or -100, and what its loss counts.
func (f *formula) targets() (targets []int32, weights []float64) {
	b := f.call.Batch
	all, count := make([]int32, len(b.Labels)), 0.0
	inSequence := make([]float64, b.Batch)
	for i := range all {
		all[i] = -100
		if b.LabelsShifted {
			all[i] = b.Labels[i]
		} else if (i+1)%b.Seq != 0 {
			all[i] = b.Labels[i+1]
		}
		if all[i] >= 0 {
			count++
			inSequence[i/b.Seq]++
		}
	}
	rows := f.rows
	if rows == nil {
		rows = span(0, len(all))
	}
	for _, r := range rows {
		w := 1 / math.Max(count, 1)
		switch b.Reduction {
		case "sum":
			w = 1
		case "sequence":
			w = 1 / math.Max(inSequence[r/b.Seq], 1) / float64(b.Batch)
		}
		targets, weights = append(targets, all[r]), append(weights, w)
	}
	return targets, weights
}
