package moe

import (
	"spmoe/tensor"
)

// Cache holds what attention needs of the earlier tokens of a sequence.
type Cache struct {
	layers   []layerCache // by layer, those on this rank
	capacity int
	tokens   int
}

// layerCache is the cache of a layer: keys and values as training rounds them, head by head.
type layerCache struct {
	keys, values tensor.Tensor // [heads, capacity, keyDim], [heads, capacity, valueDim]
	index        tensor.Tensor // of an indexer: [capacity, keyDim]
	entries      *entryCache   // of a layer with windows, instead of all that
}

// Tokens returns the number of cached tokens.
func (c *Cache) Tokens() int { return c.tokens }

// Reset forgets all tokens.
func (c *Cache) Reset() { c.tokens = 0 }

// rotate implements [decoding].
func (d *decodePass) rotate(ex *tensor.Exec, layer int, table *tensor.RotaryTable, x tensor.Matrix) {
	d.each(func(e extension, lo, hi int) {
		d.ropes[layer].PairedAs(table).From(e.cache.tokens).Rotate(ex, x.RowSlice(lo, hi), e.tokens)
	})
}

// rotateBack implements [decoding].
func (d *decodePass) rotateBack(ex *tensor.Exec, layer int, x tensor.Matrix) {
	d.each(func(e extension, lo, hi int) {
		d.ropes[layer].From(e.cache.tokens).RotateBack(ex, x.RowSlice(lo, hi), e.tokens)
	})
}

// extend implements [decoding].
func (d *decodePass) extend(layer int, f func(c *entryCache, rope *tensor.RotaryTable, lo, hi, begin int)) {
	d.each(func(e extension, lo, hi int) {
		f(e.cache.layers[layer].entries, d.ropes[layer], lo, hi, e.cache.tokens)
	})
}

// attend implements [decoding] with the kernel and the blocks of training.
func (d *decodePass) attend(ex *tensor.Exec, layer int, shape tensor.AttentionShape, o, q, k, v tensor.Tensor) {
	job := cachedJob{decodePass: d, layer: layer, shape: shape, o: o, q: q, k: k, v: v}
	work := 0
	job.lse = ex.New(tensor.FP32, q.Dim(0)*shape.Heads)
	d.each(func(e extension, lo, _ int) {
		job.first = append(job.first, lo)
		work += 2 * e.tokens * (e.cache.tokens + e.tokens) * shape.Heads * (shape.KeyDim + shape.ValueDim)
	})
	if n := len(job.first); n > 1 { // threads take whole sequences
		tensor.Parallel(ex, n, work, job, attendSequences)
	} else {
		attendSequences(ex, job, 0, n)
	}
}

// choose implements [decoding].
func (d *decodePass) choose(ex *tensor.Exec, layer, topK int, x tensor.Indexer, room func(bytes int) tensor.Tensor) {
	d.chosen = d.chosen[:0]
	var ofSequences []tensor.Indexer
	words := 0
	d.each(func(e extension, lo, hi int) {
		one, keys := x, e.cache.layers[layer].index
		one.Batch = 1
		one.Seq = e.cache.tokens + e.tokens
		one.Queries = e.tokens
		one.Room = e.cache.capacity
		tensor.Convert(ex, keys.Slice(e.cache.tokens, one.Seq).Mat(), x.K.RowSlice(lo, hi))
		one.Q = x.Q.RowSlice(lo, hi)
		one.K = keys.Mat()
		one.W = x.W.RowSlice(lo, hi)
		ofSequences = append(ofSequences, one)
		words += e.tokens * one.KeyWords()
	})
	all := room(8 * words).U64()
	for _, one := range ofSequences {
		n := one.Queries * one.KeyWords()
		tensor.ChooseKeys(ex, all[:n], topK, one)
		d.chosen, all = append(d.chosen, all[:n]), all[n:]
	}
}

// cachedJob holds the arguments of attendSequences.
type cachedJob struct {
	*decodePass
	layer           int
	shape           tensor.AttentionShape
	o, q, k, v, lse tensor.Tensor
	first           []int // row of each sequence
}

// attendSequences appends to the caches of sequences [from, to) and computes their attention.
func attendSequences(ex *tensor.Exec, j cachedJob, from, to int) {
	for i := from; i < to; i++ {
		e := j.sequences[i]
		lo := j.first[i]
		hi := j.first[i] + e.tokens
		begin := e.cache.tokens
		end := e.cache.tokens + e.tokens
		l := e.cache.layers[j.layer]
		for h := range j.shape.KVHeads {
			appendHead(ex, l.keys.Index(h).Slice(begin, end), j.k.Slice(lo, hi), h)
			appendHead(ex, l.values.Index(h).Slice(begin, end), j.v.Slice(lo, hi), h)
		}
		shape := j.shape
		shape.Seq = end
		shape.Batch = 1
		shape.Queries = e.tokens
		shape.Room = e.cache.capacity
		if len(j.chosen) > 0 {
			shape.Chosen = j.chosen[i]
		}
		tensor.CausalAttention(ex, j.o.Slice(lo, hi).Mat(), j.lse.F32()[lo*shape.Heads:hi*shape.Heads], j.q.Slice(lo, hi).Mat(), l.keys.Mat(), l.values.Mat(), shape)
	}
}

// appendHead copies head h of all, [tokens, heads·dim], to to: [tokens, dim].
func appendHead(ex *tensor.Exec, to, all tensor.Tensor, h int) {
	dim := to.Dim(1)
	tensor.Convert(ex, to.Mat(), all.Mat().ColSlice(h*dim, (h+1)*dim))
}

// extension is the part of a sequence that a pass adds.
type extension struct {
	cache  *Cache
	tokens int // that the pass adds
}

// decodePass is the state of a pass of a Decoder in addition to its tokens.
type decodePass struct {
	ropes     []*tensor.RotaryTable // of each layer
	sequences []extension           // of this rank
	chosen    [][]uint64            // the keys that each sequence's queries see; empty: all
}

// each calls f for each sequence with its rows [lo, hi) of the pass.
func (d *decodePass) each(f func(e extension, lo, hi int)) {
	lo := 0
	for _, e := range d.sequences {
		f(e, lo, lo+e.tokens)
		lo += e.tokens
	}
}
