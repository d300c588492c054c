package reference

import "strings"

// head is the loss of hidden states: of norm(x)·wᵀ.
func (f *formula) head(x *node) *node {
	return f.loss(f.project("lm_head", f.norm("model.norm", x)))
}

// loss is the cross-entropy -Σ w·log softmax(logits)[target], in FP32. w is 1 over the number of
// targets.
func (f *formula) loss(logits *node) *node {
	x := f.cast(logits, FP32)
	targets, weights := f.targets()
	y := f.node(1, 1, x.dtype)
	for r, target := range targets {
		if target >= 0 && int(target) < x.cols {
			y.data[0] += weights[r] * (softmaxRow(make([]float64, x.cols), x.row(r), x.dtype) - x.row(r)[target])
		}
	}
	y.store.roundAll(y.data)
	return f.derive(y, func() {
		f.give(x, func(r int, g []float64) {
			if target := targets[r]; target >= 0 && int(target) < x.cols {
				softmaxRow(g, x.row(r), x.dtype)
				g[target]--
				for i := range g {
					g[i] *= y.grad[0] * weights[r]
				}
			}
		})
	})
}

// targets returns the token that each one predicts, or -100, and the weight of its loss.
func (f *formula) targets() (targets []int32, weights []float64) {
	b := f.call.Batch
	all, documents := b.next(b.Labels), b.documents()
	switch {
	case f.is("labels_shifted_twice"):
		all = b.shifted(all, 1)
	case f.is("labels_not_shifted"):
		all = b.shifted(all, -1)
	case f.is("labels_rolled"):
		all = b.next(b.rolled(1))
	case f.is("labels_rolled_back"):
		all = b.next(b.rolled(-1))
	}
	if !f.is("labels_as_main") {
		all = b.shifted(all, f.ahead())
	}
	var count float64
	bySequence := make([]float64, b.Batch)
	for i := range all {
		crosses := documents != nil && (i+1)%b.Seq != 0 && documents[i] != documents[i+1]
		if f.is("loss_stops_at_documents") && crosses || f.is("loss_last_missing") && (i+2)%b.Seq == 0 {
			all[i] = -100
		}
		if all[i] >= 0 || f.is("loss_ignored_counted") {
			count++
			bySequence[i/b.Seq]++
		}
	}
	reduction := b.Reduction
	if name, ok := strings.CutPrefix(f.mistake, "loss_over_"); ok {
		reduction = name
	}
	for _, r := range f.tokens() {
		w := 1 / max(count, 1)
		switch reduction {
		case "sum":
			w = 1
		case "sequence":
			w = 1 / max(bySequence[r/b.Seq], 1) / float64(b.Batch)
		}
		targets, weights = append(targets, all[r]), append(weights, w)
	}
	return targets, weights
}
