package reference

import (
	"math"
	"slices"
	"strings"
)

// Sparse attention: an indexer scores all keys that a query may see, and the query attends to the
// IndexTopK keys with the largest scores. Source: DeepSeek-V3.2's report.
//
// The choice has no gradient. The indexer learns from a loss of its own, in two stages. In the
// first one attention is dense, and only the indexer trains. In the second one attention is sparse,
// and all trains. Its inputs are detached from the model.

// indexScores returns the score of each key for each query of one sequence, [queries, keys]:
//
//	score(t, s) = Σ_h w(t, h)/√heads · relu(q(t, h)·k(s)/√dim)
//
// q: [queries, heads·dim]; k: [keys, dim]; w: [queries, heads]. All is in FP32.
func (f *formula) indexScores(q, k, w *node) (total *node) {
	heads, dim := w.cols, k.cols
	q, k, w = f.cast(q, FP32), f.cast(k, FP32), f.cast(w, FP32)
	if !f.is("index_scale_missing") {
		w = f.scale(w, 1/math.Sqrt(float64(heads*dim)))
	}
	for h := range heads {
		dots := f.linear(f.columns(q, span(h*dim, (h+1)*dim)), k, nil)
		if !f.is("index_no_relu") {
			dots = f.clamp(dots, 0, math.Inf(1))
		}
		total = f.plus(total, f.mul(dots, f.columns(w, []int{h})))
	}
	return total
}

// masked returns the scores with -Inf for keys that a query does not see. mask is 0 or -Inf.
func masked(scores, mask []float64) []float64 {
	y := slices.Clone(scores)
	for i, m := range mask {
		if m != 0 {
			y[i] = m
		}
	}
	return y
}

// topKeys returns the keys with the k largest scores of each query, [queries, k], and -1 where a
// query sees no further key. Of equal scores, the lowest position is chosen.
func topKeys(scores []float64, keys, k int) (chosen []int) {
	for at := 0; at < len(scores); at += keys {
		row := scores[at : at+keys]
		for _, key := range largest(row, min(k, keys)) {
			if math.IsInf(row[key], -1) {
				key = -1
			}
			chosen = append(chosen, key)
		}
	}
	return chosen
}

// keyChoices returns the selected rows of a replayed choice of keys, [tokens, k] or nil. A key is a
// place in the sequence of its query; a negative one is none.
func (f *formula) keyChoices(name string, keys int) (chosen []int) {
	x, ok := f.call.Given(name)
	tokens := f.call.Batch.Batch * f.call.Batch.Seq
	k := len(x.Data) / tokens
	if ok && (k == 0 || k*tokens != len(x.Data)) {
		f.fail("%s has %d elements: expected as many keys for each of %d tokens", name, len(x.Data), tokens)
		return nil
	}
	for _, r := range f.tokens() {
		for _, v := range x.Data[r*k : (r+1)*k] {
			if int(v) >= keys {
				f.fail("%s holds %g: expected a key below %d", name, v, keys)
				return nil
			}
			chosen = append(chosen, max(int(v), -1))
		}
	}
	return chosen
}

// restrict returns a mask of some queries, [queries, keys], with only the chosen keys in it.
func restrict(mask []float64, keys int, chosen []int) []float64 {
	queries := len(mask) / keys
	k := len(chosen) / queries
	only := slices.Repeat([]float64{math.Inf(-1)}, len(mask))
	for i, key := range chosen {
		if key >= 0 {
			only[i/k*keys+key] = mask[i/k*keys+key]
		}
	}
	return only
}

// index scores the keys of each sequence and chooses some. Its inputs are the queries, keys and
// weights of the indexer. The result is [tokens, Seq].
func (f *formula) index(path string, in []*node) *node {
	if f.Streams > 0 {
		return f.entryIndex(path, in)
	}
	n, tokens := f.batch.Seq, in[0].rows
	var visible []float64
	var rows [][]int
	scores := f.sequenceScores(in)
	for s, own := range scores {
		visible = append(visible, masked(own.data, f.indexMask(s))...)
		rows = append(rows, span(s*n, (s+1)*n))
	}
	f.chooseKeys(path, visible, n)
	return f.sumRows(scores, rows, f.node(tokens, n, scores[0].dtype))
}

// chooseKeys chooses from the scores of the keys that each query sees, [tokens, keys], unless the
// choice is replayed.
func (f *formula) chooseKeys(path string, visible []float64, keys int) {
	own := topKeys(visible, keys, pick(f, map[string]int{"index_no_topk": keys}, f.IndexTopK))
	f.note(path+".choice", visible, keys)
	indices := make([]float64, len(own))
	for i, key := range own {
		indices[i] = float64(key)
	}
	f.note(path+".indices", indices, len(own)*keys/len(visible))
	if f.chosen[path] = f.keyChoices(path+".indices", keys); f.chosen[path] == nil {
		f.chosen[path] = own
	}
}

// sequenceScores returns the scores of each sequence, [Seq, Seq], of rotated queries and keys.
func (f *formula) sequenceScores(in []*node) (all []*node) {
	q, k := f.indexRotary(in[0]), f.indexRotary(in[1])
	if f.is("index_hadamard_on_queries") {
		q = f.hadamard(q, f.IndexDim)
	}
	for s := range f.batch.Batch {
		rows := span(s*f.batch.Seq, (s+1)*f.batch.Seq)
		all = append(all, f.indexScores(f.rowsOf(q, rows), f.rowsOf(k, rows), f.rowsOf(in[2], rows)))
	}
	return all
}

// indexRotary turns the first RopeDim elements of each head of an indexer: DeepSeek's by halves,
// GLM's by neighbours.
func (f *formula) indexRotary(x *node) *node {
	from := 0
	if f.is("index_rope_other_end") {
		from = f.IndexDim - f.RopeDim
	}
	interleaved := f.IndexInterleaved != f.is("index_rope_other_pairs")
	return f.rotate(x, f.IndexDim, f.RopeDim, f.RopeDim, from, interleaved, f.positions(0), 1)
}

// hadamard multiplies each head by the Hadamard matrix by √dim. A dim that is no power of two has
// none.
func (f *formula) hadamard(x *node, dim int) *node {
	if dim&(dim-1) != 0 {
		return x
	}
	h := []float64{1 / math.Sqrt(float64(dim))}
	for n := 1; n < dim; n *= 2 {
		var next []float64
		for r := range 2 * n {
			sign := float64(1 - 2*(r/n))
			for i := range 2 * n {
				v := h[r%n*n+i%n]
				if i >= n {
					v *= sign
				}
				next = append(next, v)
			}
		}
		h = next
	}
	y := f.linear(f.reshape(x, dim), f.constant(dim, dim, h, x.dtype), nil)
	return f.reshape(y, x.cols)
}

// indexMask is the mask of the scores of an indexer.
func (f *formula) indexMask(s int) []float64 {
	other := *f
	other.mistake = pick(f, map[string]string{
		"index_mask_late": "mask_late", "index_mask_early": "mask_early", "index_mask_missing": "mask_missing", "index_documents_joined": "documents_joined",
	}, f.mistake)
	return other.mask(s)
}

// indexer returns the path of the indexer whose choice a layer uses: its own, or that of the last
// layer before that has one.
func (c *Config) indexer(layer int) string {
	for layer > 0 && c.Shared(layer) {
		layer--
	}
	return layerPath(layer) + ".self_attn.indexer"
}

// selection returns the choice of keys that a layer uses, [tokens, k]; nil: it attends to all. A
// shared layer that makes its own choice has a recorded one, or it scores with the other layer's
// weights.
func (f *formula) selection(layer int) []int {
	if f.IndexTopK == 0 || f.call.Warmup || f.is("index_no_topk") {
		return nil
	}
	path := f.indexer(layer)
	if own := layerPath(layer) + ".self_attn"; f.is("index_not_shared") && own+".indexer" != path {
		for _, name := range []string{own + ".indexer.indices", own + ".output.2"} { // the second one is GLM's
			if chosen := f.keyChoices(name, f.batch.Seq); chosen != nil {
				return chosen
			}
		}
		f.scoreAgain(path, own)
		path = own + ".indexer"
	}
	if f.chosen[path] == nil {
		f.chosen[path] = f.keyChoices(path+".indices", f.batch.Seq)
	}
	if f.chosen[path] == nil {
		f.fail("give the choices of %s", path)
		return slices.Repeat([]int{-1}, f.batch.Batch*f.batch.Seq)
	}
	return f.chosen[path]
}

// scoreAgain makes a choice for an attention by the weights of another layer's indexer.
func (f *formula) scoreAgain(weights, attention string) {
	x := f.values[attention+".input"]
	c := f.values[attention+".q_a_layernorm.output"]
	if x == nil || c == nil {
		return
	}
	k := f.layerNorm(weights+".k_norm", f.project(weights+".wk", x))
	f.index(attention+".indexer", []*node{f.project(weights+".wq_b", c), k, f.project(weights+".weights_proj", x)})
}

// indexLoss is the loss of an indexer: the mean over the queries with a target of
//
//	KL(p ‖ softmax(scores)) = Σ p·(log p - log softmax(scores))
//
// over the keys that attention sees: the chosen ones, or all in the first stage. p is the mean over
// heads of the attention's softmax, a constant. in: the inputs of the attention's core, and those
// of index. Only the latter have a gradient.
func (f *formula) indexLoss(m *Module, in []*node) *node {
	scores := f.sequenceScores(in[3:])
	total := f.shareOfLoss(m.Layer, in[:3], scores)
	for layer := m.Layer + 1; f.is("index_shared_supervised") && f.Shared(layer); layer++ {
		var own []*node
		for _, p := range m.Inputs[:3] {
			p.Name = strings.Replace(p.Name, layerPath(m.Layer), layerPath(layer), 1)
			own = append(own, f.look(p))
		}
		total = f.add(total, f.shareOfLoss(layer, own, scores), 1)
	}
	return total
}

// targetGradient adds what the loss of a layer's indexer would send to the inputs of its core.
func (f *formula) targetGradient(core []*node) {
	attention := layerPath(f.layer) + ".self_attn"
	if f.IndexTopK == 0 || f.Shared(f.layer) || f.call.Losses[attention+".indexer.loss"] == 0 {
		return
	}
	var in []*node
	for _, name := range []string{"wq_b", "k_norm", "weights_proj"} {
		in = append(in, f.look(Port{Name: attention + ".indexer." + name + ".output"}))
	}
	f.values[attention+".indexer.loss"] = f.shareOfLoss(f.layer, core, f.sequenceScores(in))
}

// shareOfLoss is the loss of scores against the attention of a layer.
func (f *formula) shareOfLoss(layer int, core []*node, scores []*node) *node {
	q, k, _ := f.heads(core)
	if !f.is("index_target_attached") {
		q, k = f.detached(q), f.detached(k)
	}
	n, chosen, weights := f.batch.Seq, f.selection(layer), f.rowWeights()
	total := f.constant(1, 1, []float64{0}, scores[0].dtype)
	for s := range scores {
		mask := f.mask(s)
		seen := mask
		if per := len(chosen) / len(weights); chosen != nil {
			seen = restrict(mask, n, chosen[s*n*per:(s+1)*n*per])
		}
		if !f.is("index_target_dense") {
			mask = seen
		}
		rows := span(s*n, (s+1)*n)
		p := f.meanAttention(f.rowsOf(q, rows), f.rowsOf(k, rows), f.constant(n, n, mask, q.dtype))
		if f.is("index_target_dense") {
			p = f.mul(p, f.apply(f.constant(n, n, seen, p.dtype), math.Exp, nil))
			p = f.mul(p, f.reciprocal(f.sum(p)))
		}
		x := f.add(scores[s], f.constant(n, n, seen, scores[s].dtype), 1)
		total = f.add(total, f.divergence(p, x, weights[s*n:(s+1)*n]), 1)
	}
	return total
}

// meanAttention returns the mean over heads of softmax(q·kᵀ·scale + mask) of one sequence.
func (f *formula) meanAttention(q, k, mask *node) (mean *node) {
	for h := range f.Heads {
		columns := span(h*f.HeadDim, (h+1)*f.HeadDim)
		scores := f.scale(f.linear(f.columns(q, columns), f.columns(k, columns), nil), f.scoreScale())
		p := f.scale(f.softmax(f.cast(f.add(scores, mask, 1), FP32)), 1/float64(f.Heads))
		mean = f.plus(mean, p)
	}
	return mean
}

// rowWeights returns the weight of each query in the loss of an indexer: one over the number of
// queries of the whole batch that have a target.
func (f *formula) rowWeights() (weights []float64) {
	all, count := f.aims(), 0
	for _, target := range all {
		if target >= 0 || f.is("index_loss_all_rows") {
			count++
		}
	}
	each := 1 / float64(max(count, 1))
	each = pick(f, map[string]float64{"index_loss_sum": 1}, each)
	for _, r := range f.tokens() {
		if all[r] >= 0 || f.is("index_loss_all_rows") {
			weights = append(weights, each)
			continue
		}
		weights = append(weights, 0)
	}
	return weights
}

// divergence is Σ weight·KL(p ‖ softmax(x)) over rows, where x may hold -Inf.
func (t *tape) divergence(p, x *node, weights []float64) *node {
	y := t.node(1, 1, x.dtype)
	logs := make([]float64, len(x.data)) // log p - log softmax(x)
	soft := make([]float64, len(x.data))
	for i, v := range p.data {
		r := i / x.cols
		if row := soft[r*x.cols : (r+1)*x.cols]; i%x.cols == 0 {
			total := softmaxRow(row, x.row(r), accumulator(x))
			for c, score := range x.row(r) {
				logs[i+c] = total - score
			}
		}
		if v > 0 {
			logs[i] += math.Log(v)
			y.data[0] += weights[r] * v * logs[i]
		}
	}
	y.store.roundAll(y.data)
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			for i := range g {
				if weights[r] > 0 {
					g[i] = y.grad[0] * weights[r] * (soft[r*x.cols+i] - p.row(r)[i])
				}
			}
		})
		t.give(p, func(r int, g []float64) {
			for i, v := range p.row(r) {
				if v > 0 {
					g[i] = y.grad[0] * weights[r] * (logs[r*x.cols+i] + 1)
				}
			}
		})
	})
}
