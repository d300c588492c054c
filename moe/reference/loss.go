package reference

import "strings"

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
	b, all := f.call.Batch, f.aims()
	var count float64
	bySequence := make([]float64, b.Batch)
	for i := range all {
		if all[i] >= 0 || f.is("loss_ignored_counted") {
			count++
			bySequence[i/b.Seq]++
		}
	}
	reduction := b.Reduction
	if name, ok := f.begins("loss_over_"); ok {
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

// aims returns the token that each token of the batch predicts, or -100.
func (f *formula) aims() []int32 {
	b := f.call.Batch
	rolls := map[string]int{"labels_rolled": 1, "labels_rolled_2": 2, "labels_rolled_3": 3, "labels_rolled_back": -1}
	shifts := map[string]int{"labels_shifted_twice": 1, "labels_shifted_3": 2, "labels_shifted_4": 3, "labels_not_shifted": -1}
	all, documents := b.rolled(b.Labels, pick(f, rolls, 0)), b.documents()
	if !b.LabelsShifted {
		all = b.shifted(all, 1)
	}
	all = b.shifted(all, pick(f, shifts, 0))
	if !f.is("labels_as_main") {
		all = b.shifted(all, f.ahead())
	}
	for i := range all {
		crosses := documents != nil && (i+1)%b.Seq != 0 && documents[i] != documents[i+1]
		if f.is("loss_stops_at_documents") && crosses || f.is("loss_last_missing") && (i+2)%b.Seq == 0 {
			all[i] = -100
		}
	}
	return all
}

// The losses of router logits.
const (
	loadBalance     = "load_balance"
	sequenceBalance = "sequence_balance"
)

// balance is a loss of router logits:
//
//	load_balance      experts · Σ_e f_e·P_e: f_e choices of e per token, P_e its mean probability,
//	                  over all tokens of all layers given. Source: arXiv 2101.03961, (4) to (6).
//	sequence_balance  the mean over sequences of experts/k · Σ_e f_e·P_e, with probabilities that
//	                  add up to one. Source: arXiv 2412.19437, (17) to (20).
//
// Only the probabilities have a gradient. Padding does not count.
func (f *formula) balance(m *Module, in []*node) *node {
	total := f.constant(1, 1, []float64{0}, in[0].dtype)
	share := f.shares(m, len(in)) // of the tokens of a sequence, or of all
	sequence := func(r int) int { return r / f.batch.Seq * f.Experts }
	scale := float64(f.Experts) / float64(f.TopK*f.batch.Batch)
	if strings.HasSuffix(m.Path, loadBalance) {
		sequence, scale = func(int) int { return 0 }, float64(f.Experts)
	}
	load, probabilities := make([]float64, f.batch.Batch*f.Experts), make([]*node, len(in))
	for i, x := range in {
		gate := strings.TrimSuffix(m.Inputs[i].Name, ".logits")
		p := f.scores(x)
		if !f.Softmax {
			p = f.mul(p, f.reciprocal(f.sum(p)))
		}
		probabilities[i] = p
		chosen := f.choices(gate+".indices", f.Experts)
		if chosen == nil {
			chosen = f.choose(gate, p)
		}
		for k, e := range chosen {
			load[sequence(k/f.TopK)+e] += share[k/f.TopK]
		}
	}
	for _, p := range probabilities {
		weights := make([]float64, len(p.data))
		for i := range weights {
			r, e := i/p.cols, i%p.cols
			weights[i] = scale * share[r] * load[sequence(r)+e]
		}
		terms := f.mul(p, f.constant(p.rows, p.cols, weights, p.dtype))
		total = f.add(total, f.sum(f.reshape(terms, len(weights))), 1)
	}
	return total
}

// shares returns one over the number of tokens with which each one is counted, and 0 for padding.
func (f *formula) shares(m *Module, layers int) []float64 {
	each := make([]float64, f.batch.Batch*f.batch.Seq)
	counts := make([]float64, f.batch.Batch)
	group := func(r int) int {
		if strings.HasSuffix(m.Path, sequenceBalance) {
			return r / f.batch.Seq
		}
		return 0
	}
	for r := range each {
		if f.batch.Mask == nil || f.batch.Mask[r] != 0 || f.is("balance_padding_counted") {
			each[r] = 1
			counts[group(r)] += float64(layers)
		}
	}
	for r := range each {
		each[r] /= max(counts[group(r)], 1)
	}
	return each
}
