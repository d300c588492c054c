package reference

import (
	"math"
	"slices"
	"strings"
)

// Compressed attention: a query sees the tokens of a window, and entries behind them. An entry
// stands for ratio tokens that follow each other. Keys are values: there is one head of them.
// Queries of heavily compressed layers see all entries of the past, those of sparse ones the
// entries that an indexer chose.

// The kinds of a layer's attention in config.json.
const (
	slidingAttention = "sliding_attention"
	sparseAttention  = "compressed_sparse_attention"
	heavyAttention   = "heavily_compressed_attention"
)

// entry is a window of tokens that became one key.
type entry struct {
	first, start int // rows of its first token, and of the first one of its document
	index        int // of the window in its document
}

// entries lists those of each sequence. Windows begin again at each document. What is left at the
// end of one makes no entry.
func (f *formula) entries() (all [][]entry) {
	n, ratio, documents := f.batch.Seq, f.Ratio(f.layer), f.batch.documents()
	if f.is("entries_cross_documents") {
		documents = nil
	}
	for s := range f.batch.Batch {
		var list []entry
		start := s * n
		for t := s * n; t < (s+1)*n; t++ {
			if documents != nil && documents[t] != documents[start] {
				start = t
			}
			if at := t - start + 1; at%ratio == 0 {
				list = append(list, entry{first: t + 1 - ratio, start: start, index: at/ratio - 1})
			}
		}
		all = append(all, list)
	}
	return all
}

// fits reports whether there is one entry for each window of the batch.
func (f *formula) fits(entries *node) bool {
	count := 0
	for _, list := range f.entries() {
		count += len(list)
	}
	if count != entries.rows {
		f.fail("%d entries: expected %d, one for each whole window of %d tokens of a document", entries.rows, count, f.Ratio(f.layer))
	}
	return count == entries.rows
}

// starts returns the row of the first token of each token's document.
func (f *formula) starts() []int {
	documents := f.batch.documents()
	starts := make([]int, f.batch.Batch*f.batch.Seq)
	for t := range starts {
		same := t%f.batch.Seq != 0 && (documents == nil || documents[t] == documents[t-1])
		if starts[t] = t; same {
			starts[t] = starts[t-1]
		}
	}
	return starts
}

// entryMask returns, for a sequence, 0 where a token sees an entry and -Inf elsewhere: [seq,
// entries]. An entry is seen once its window is over.
func (f *formula) entryMask(s int, list []entry) []float64 {
	n := f.batch.Seq
	ratio := f.Ratio(f.layer)
	starts := f.starts()
	places := f.positions(0)
	crossing := f.is("entries_cross_documents")
	late := pick(f, map[string]int{"entries_late": 0}, 1)
	all, none := f.is("entries_not_causal"), f.is("entries_missing")
	mask := make([]float64, n*len(list))
	for i := range n {
		at := s*n + i
		for k, e := range list {
			place, same := at-starts[at], e.start == starts[at]
			if crossing {
				place, same = int(places[at]), true
			}
			if !same || none || e.index >= (place+late)/ratio && !all {
				mask[i*len(list)+k] = math.Inf(-1)
			}
		}
	}
	return mask
}

// pool makes the entries of a compressor from two projections of the tokens: the values, and their
// logits in a softmax over the tokens of a window, for each channel by itself.
//
//	entry = norm(Σ_t softmax_t(gate_t + bias[t mod ratio]) ∘ kv_t), rotated by the first position
//
// Sparse layers have projections of twice the width. Their entries overlap: the first half of the
// channels is of the window before, the second half of the entry's own. The first window of a
// document has none before it.
func (f *formula) pool(path string, kv, gate *node) *node {
	w := f.param(path + ".kv_norm.weight").cols
	slots, at, seen := f.slots(w, kv.cols)
	rows := len(seen) / slots
	if !f.is("position_bias_missing") {
		ratio, starts := f.Ratio(f.layer), f.starts()
		which := make([]int, gate.rows)
		for t := range which {
			if which[t] = (t - starts[t]) % ratio; f.is("entries_cross_documents") {
				which[t] = t % f.batch.Seq % ratio
			}
		}
		gate = f.add(gate, f.rowsOf(f.param(path+".position_bias"), which), 1)
	}
	pooled := f.kernel(func() *node {
		logits := f.add(f.cast(f.take(gate, rows, slots, at), FP32), f.constant(rows, slots, seen, FP32), 1)
		if f.is("pool_softmax_missing") {
			logits = f.add(f.scale(f.take(gate, rows, slots, at), 0), f.constant(rows, slots, seen, FP32), 1)
		}
		p := f.cast(f.softmax(logits), kv.dtype)
		return f.sum(f.mul(f.take(kv, rows, slots, at), p))
	})
	places := f.positions(0)
	var positions []int32
	for _, list := range f.entries() {
		for _, e := range list {
			position := places[e.first]
			if f.is("entries_cross_documents") {
				position = int32(e.index * f.Ratio(f.layer))
			} else if f.is("rope_of_entry_index") {
				position = int32(e.index)
			}
			positions = append(positions, position)
		}
	}
	entries := f.norm(path+".kv_norm", f.reshape(pooled, w))
	if f.is("rope_missing") {
		return entries
	}
	return f.rotaryAt(entries, w, positions, 1)
}

// slots returns where the terms of each channel of each entry are in a projection of some columns,
// and a mask of those that are there: a row for each channel of width w.
func (f *formula) slots(w, cols int) (slots int, at func(r, i int) int, seen []float64) {
	ratio, overlap := f.Ratio(f.layer), cols == 2*w
	before, own := 0, 0 // columns
	if slots = ratio; overlap {
		slots, own = 2*ratio, w
	}
	if f.is("overlap_halves_swapped") {
		before, own = own, before
	}
	var firsts []int
	for _, list := range f.entries() {
		for _, e := range list {
			firsts = append(firsts, e.first)
			for range w {
				for i := range slots {
					missing := overlap && i < ratio && (e.index == 0 || f.is("overlap_missing"))
					seen = append(seen, map[bool]float64{true: math.Inf(-1)}[missing])
				}
			}
		}
	}
	return slots, func(r, i int) int {
		token, column := firsts[r/w]+i, own
		if overlap {
			token -= ratio
			if i < ratio {
				column = before
			}
		}
		return max(token, 0)*cols + column + r%w
	}, seen
}

// entryIndex scores the entries of each query's sequence: [tokens, entries].
func (f *formula) entryIndex(path string, in []*node) *node {
	q := f.rotaryAt(in[0], f.IndexDim, f.positions(0), 1)
	k := in[1]
	all := f.entries()
	if f.is("index_hadamard_on_queries") {
		q = f.hadamard(q, f.IndexDim)
	}
	most := 0
	for _, list := range all {
		most = max(most, len(list))
	}
	if most == 0 || !f.fits(k) {
		f.fail("no window of %d tokens is whole", f.Ratio(f.layer))
		return in[0]
	}
	scores := make([]float64, q.rows*most)
	visible := make([]float64, len(scores))
	for i := range visible {
		visible[i] = math.Inf(-1)
	}
	from, n := 0, f.batch.Seq
	for s, list := range all {
		own := f.indexScores(f.rowsOf(q, span(s*n, (s+1)*n)), f.rowsOf(k, span(from, from+len(list))), f.rowsOf(in[2], span(s*n, (s+1)*n)))
		mask := f.entryMask(s, list)
		for i := range own.data {
			to := (s*n+i/len(list))*most + i%len(list)
			scores[to], visible[to] = own.data[i], own.data[i]+mask[i]
		}
		from += len(list)
	}
	f.chooseKeys(path, visible, most)
	return f.constant(q.rows, most, scores, FP32)
}

// sharedCore is the attention of layers with one head of keys, which are the values too.
func (f *formula) sharedCore(in []*node) *node {
	q, k, d := in[0], in[1], f.HeadDim
	if !f.is("query_head_norm_missing") {
		q = f.kernel(func() *node {
			x := f.reshape(in[0], d)
			x32 := f.cast(x, FP32)
			rstd := f.cast(f.rsqrt(f.scale(f.sum(f.square(x32)), 1/float64(d)), f.Eps), x.dtype)
			return f.mul(x, rstd)
		})
		q = f.reshape(q, in[0].cols)
	}
	sign := pick(f, map[string]float64{"rope_queries_reversed": -1}, 1)
	ahead := pick(f, map[string]int{"rope_position_plus_1": 1, "rope_position_minus_1": -1}, 0)
	if !f.is("rope_missing") && !f.is("rope_keys_only") {
		q = f.rotaryAt(q, d, f.positions(ahead), sign)
	}
	if !f.is("rope_missing") && !f.is("rope_queries_only") {
		k = f.rotaryAt(k, d, f.positions(0), 1)
	}
	var entries *node
	if len(in) > 2 {
		entries = in[2]
	}
	o := f.attendShared(f.flow(q, "queries_detached"), f.flow(k, "keys_detached"), entries)
	if !f.is("output_not_turned_back") {
		o = f.rotaryAt(o, d, f.positions(0), -1)
	}
	if f.is("output_groups_interleaved") {
		var order []int
		for i := range f.Heads { // head i of the result, group by group
			each := f.Heads / f.OutputGroups
			from := i%each*f.OutputGroups + i/each
			order = append(order, span(from*d, (from+1)*d)...)
		}
		o = f.columns(o, order)
	}
	return o
}

// attendShared is the attention of all heads to the keys of a sequence: its tokens, and its
// entries, which may be nil. As in attend, each head has a tape of its own.
func (f *formula) attendShared(q, k, entries *node) *node {
	n, d := f.batch.Seq, f.HeadDim
	sinks := f.param(strings.TrimSuffix(f.module.Path, "core") + "sinks")
	var masks [][]float64
	for s := range f.batch.Batch {
		masks = append(masks, f.mask(s))
	}
	if entries != nil && f.fits(entries) {
		for s, list := range f.entries() {
			masks[s] = beside(masks[s], f.seenEntries(s, list), n)
		}
	}
	layer := f.apart()
	o := f.node(q.rows, q.cols, promote(q.dtype, k.dtype))
	// each computes every head, and then calls after for the sequence whose first entry is at from.
	each := func(do func(s, h int, one *formula, parts []*node, y *node), after func(s, from, count int)) {
		from := 0
		for s, mask := range masks {
			keys, count := k.data[s*n*d:(s+1)*n*d], len(mask)/n-n
			if count > 0 {
				keys = append(slices.Clone(keys), entries.data[from*d:(from+count)*d]...)
			}
			seen := f.constant(n, n+count, mask, o.dtype)
			parallel(f.Heads, n*len(keys), func(lo, hi int) {
				for h := lo; h < hi; h++ {
					one := layer.apart()
					parts := []*node{
						{rows: n, cols: d, data: f.headRows(q.data, s, h, d), dtype: q.dtype, store: q.store},
						{rows: n + count, cols: d, data: keys, dtype: k.dtype, store: k.store},
						{rows: 1, cols: 1, data: sinks.data[h : h+1], dtype: sinks.dtype, store: sinks.store},
					}
					do(s, h, one, parts, one.oneHead(parts[0], parts[1], parts[1], seen, parts[2]))
				}
			})
			after(s, from, count)
			from += count
		}
	}
	each(func(s, h int, _ *formula, _ []*node, y *node) { f.setHeadRows(o.data, y.data, s, h, d) }, func(int, int, int) {})
	return f.derive(o, func() {
		toQueries := make([]float64, len(q.data))
		toKeys := make([]float64, len(k.data))
		toSinks := make([]float64, f.Heads)
		var toEntries []float64
		byHead := make([][]float64, f.Heads) // gradients of the keys of one sequence
		each(func(s, h int, one *formula, parts []*node, y *node) {
			y.grad = f.headRows(o.grad, s, h, d)
			one.tape.run()
			f.setHeadRows(toQueries, gradient(parts[0]).Data, s, h, d)
			byHead[h] = gradient(parts[1]).Data
			toSinks[h] += gradient(parts[2]).Data[0]
		}, func(s, _, count int) {
			sum := make([]float64, (n+count)*d)
			for _, g := range byHead {
				for i, v := range g {
					sum[i] += v
				}
			}
			copy(toKeys[s*n*d:], sum[:n*d])
			toEntries = append(toEntries, sum[n*d:]...)
		})
		f.giveAll(q, toQueries)
		f.giveAll(k, toKeys)
		f.giveAll(sinks, toSinks)
		if entries != nil {
			f.giveAll(entries, toEntries)
		}
	})
}

// seenEntries is the mask of a sequence's entries in attention: of a sparse layer, only those that
// were chosen.
func (f *formula) seenEntries(s int, list []entry) []float64 {
	mask := f.entryMask(s, list)
	path := layerPath(f.layer) + ".self_attn.compressor.indexer"
	if f.Attention(f.layer) != sparseAttention || f.is("index_no_topk") {
		return mask
	}
	if f.chosen[path] == nil {
		f.chosen[path] = f.keyChoices(path+".indices", len(list))
	}
	chosen := f.chosen[path]
	if chosen == nil {
		f.fail("give the choices of %s", path)
		return mask
	}
	per := len(chosen) / f.batch.Batch
	return restrict(make([]float64, len(mask)), len(list), chosen[s*per:(s+1)*per])
}

// beside returns two masks of n rows next to each other.
func beside(a, b []float64, n int) (both []float64) {
	for i := range n {
		both = append(both, a[i*len(a)/n:(i+1)*len(a)/n]...)
		both = append(both, b[i*len(b)/n:(i+1)*len(b)/n]...)
	}
	return both
}
