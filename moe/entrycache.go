package moe

// Generation with windows and entries: a layer keeps the keys of all tokens, and of compressors the
// values and gates of all tokens, because an entry is computed when its window is complete.

import "spmoe/tensor"

// newCache returns a cache for up to capacity tokens.
func (a *compressedAttention) newCache(dtype tensor.DType, capacity int) *entryCache {
	c := &entryCache{keys: tensor.New(dtype, capacity, a.cfg.KeyDim())}
	c.main = a.compressor.newCache(dtype, capacity)
	if a.indexer != nil {
		c.index = a.indexer.keys.newCache(dtype, capacity)
	}
	return c
}

func (c *compressor) newCache(dtype tensor.DType, capacity int) (all compressorCache) {
	if c == nil {
		return all
	}
	cols := c.values.W.Dim(0)
	return compressorCache{tensor.New(dtype, capacity, cols), tensor.New(dtype, capacity, cols), tensor.New(dtype, capacity/c.rate, c.width)}
}

// extend appends rows u and z of tokens to a cache that has the tokens before begin, and computes
// the entries whose windows are complete now. It returns all entries.
func (c *compressor) extend(p phase, to compressorCache, u, z tensor.Tensor, begin int, rope *tensor.RotaryTable) tensor.Tensor {
	end := begin + u.Dim(0)
	tensor.Convert(p.ex, to.u.Slice(begin, end).Mat(), u.Mat())
	tensor.Convert(p.ex, to.z.Slice(begin, end).Mat(), z.Mat())
	from, n := begin/c.rate, end/c.rate
	all := to.entries.Slice(0, n)
	if from == n {
		return all
	}
	starts := p.scratch.New(tensor.INT32, n-from).I32()
	for i := range starts {
		starts[i] = int32((from + i) * c.rate)
	}
	var s compressorState
	c.compress(p, &s, end, starts, to.u.Slice(0, end), to.z.Slice(0, end))
	tensor.Convert(p.ex, all.Slice(from, n).Mat(), c.finish(p, &s, rope).Mat())
	return all
}

// extend computes the attention of tokens that extend sequences, from queries and keys before their
// norms.
func (a *compressedAttention) extend(p phase, s *compressedState, keys tensor.Tensor) {
	p.in(Scores)
	p.saved, p.cheap = p.scratch, p.scratch
	var indexU, indexZ, indexQ, indexW tensor.Tensor
	if a.indexer != nil {
		var state compressorState
		a.indexer.keys.project(p, &s.x, &state)
		indexU, indexZ = state.u, state.z
		indexQ, indexW = a.indexer.queries(p, &s.x, &s.qLatent)
	}
	if a.compressor != nil {
		a.compressor.project(p, &s.x, &s.compressor)
	}
	p.decoding.extend(p.layer, func(c *entryCache, rope *tensor.RotaryTable, lo, hi, begin int) {
		mark := p.ex.Mark()
		defer p.ex.Release(mark)
		end := begin + hi - lo
		shape := a.cfg.shape()
		shape.Seq = end
		shape.Batch = 1
		shape.Queries = hi - lo
		shape.Sinks = a.sinks.W.Reshape(a.cfg.Heads).F32()
		shape.First = p.scratch.New(tensor.INT32, end).I32()
		for t := range shape.First {
			shape.First[t] = int32(max(t-a.cfg.Window+1, 0))
		}
		tensor.Convert(p.ex, c.keys.Slice(begin, end).Mat(), keys.Slice(lo, hi).Mat())
		all := c.keys.Slice(0, end)
		if a.compressor != nil {
			entries := a.compressor.extend(p, c.main, s.compressor.u.Slice(lo, hi), s.compressor.z.Slice(lo, hi), begin, rope)
			choice := tensor.EntryChoice{Rate: a.compressor.rate}
			if a.indexer != nil {
				k := a.indexer.keys.extend(p, c.index, indexU.Slice(lo, hi), indexZ.Slice(lo, hi), begin, rope)
				choice.TopK = a.cfg.IndexTopK
				choice.Index = a.indexer.scores(k, indexQ.Slice(lo, hi), indexW.Slice(lo, hi), k.Dim(0))
			}
			all = a.withEntries(p, &shape, choice, all, entries)
		}
		tensor.CausalAttention(p.ex, s.o.Slice(lo, hi).Mat(), s.lse.F32()[lo*shape.Heads:hi*shape.Heads], s.q.Slice(lo, hi).Mat(), all.Mat(), all.Mat(), shape)
	})
}

// withEntries returns keys with entries behind them, and sets what the queries of shape see.
func (a *compressedAttention) withEntries(p phase, shape *tensor.AttentionShape, c tensor.EntryChoice, keys, entries tensor.Tensor) tensor.Tensor {
	n := entries.Dim(0)
	if n == 0 {
		return keys
	}
	shape.Extra = n
	all := p.scratch.New(keys.DType(), shape.Seq+n, keys.Dim(1))
	tensor.Convert(p.ex, all.Slice(0, shape.Seq).Mat(), keys.Mat())
	tensor.Convert(p.ex, all.Slice(shape.Seq, shape.Seq+n).Mat(), entries.Mat())
	shape.Chosen = p.scratch.New(tensor.UINT8, shape.Queries, 8*shape.KeyWords()).U64()
	c.AttentionShape = *shape
	c.Choose(p.ex, shape.Chosen)
	return all
}
