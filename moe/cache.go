package moe

import "spmoe/tensor"

// Cache holds what attention needs of the earlier tokens of a sequence. The MTP module caches
// nothing.
type Cache struct {
	layers   []layerCache // by layer, those on this rank
	capacity int
	tokens   int
}

// layerCache is the cache of a layer: keys and values as training rounds them, head by head, or
// what they are computed from.
type layerCache struct {
	keys, values tensor.Tensor // [heads, capacity, keyDim], [heads, capacity, valueDim]
	rows         tensor.Tensor // [capacity, attentionKind.compressed()]
}

// NewCache returns a cache for a sequence of up to capacity tokens. It takes
// capacity·Config.CacheBytes bytes on all ranks of a pipeline together.
func (d *Decoder) NewCache(capacity int) *Cache {
	c := &Cache{layers: make([]layerCache, len(d.absorbed)), capacity: capacity}
	for _, m := range d.stages {
		cfg, dtype := m.Config, m.precision.DType
		for _, b := range m.blocks {
			if d.absorbed[b.layer] != nil {
				c.layers[b.layer].rows = tensor.New(dtype, capacity, cfg.kind().compressed())
				continue
			}
			heads := cfg.keyHeads()
			c.layers[b.layer] = layerCache{keys: tensor.New(dtype, heads, capacity, cfg.KeyDim()), values: tensor.New(dtype, heads, capacity, cfg.ValueDim)}
		}
	}
	return c
}

// Tokens returns the number of cached tokens.
func (c *Cache) Tokens() int { return c.tokens }

// Capacity returns the maximum number of tokens.
func (c *Cache) Capacity() int { return c.capacity }

// Reset forgets all tokens.
func (c *Cache) Reset() { c.tokens = 0 }

// CacheBytes returns the bytes per token of a Cache with elements of dtype, of a fast decoder or of
// another.
func (c Config) CacheBytes(dtype tensor.DType, fast bool) int {
	compressed, expanded := c.KVCache()
	if fast {
		return int(compressed) * dtype.Size()
	}
	return int(expanded) * dtype.Size()
}

// attendCached appends the keys and values of the pass's tokens to the caches, and computes
// attention over all that these hold then, with the kernel and the blocks of training.
func (s *scoreState) attendCached(p phase, c Config, scale float32) {
	s.o = activation{Tensor: p.saved.New(s.q.DType(), s.q.Dim(0), c.Heads*c.ValueDim)}
	s.lse = p.saved.New(tensor.FP32, s.q.Dim(0)*c.Heads)
	p.decoding.each(func(e extension, lo, hi int) {
		begin, end, l := e.cache.tokens, e.cache.tokens+e.tokens, e.cache.layers[p.layer]
		for h := range c.keyHeads() {
			tensor.Convert(p.ex, l.keys.Index(h).Slice(begin, end).Mat(), s.k.Mat().RowSlice(lo, hi).ColSlice(h*c.KeyDim(), (h+1)*c.KeyDim()))
			tensor.Convert(p.ex, l.values.Index(h).Slice(begin, end).Mat(), s.v.Mat().RowSlice(lo, hi).ColSlice(h*c.ValueDim, (h+1)*c.ValueDim))
		}
		shape := c.scoreShape(end, scale)
		shape.Batch, shape.Queries, shape.Room = 1, e.tokens, e.cache.capacity
		tensor.CausalAttention(p.ex, s.o.Mat().RowSlice(lo, hi), s.lse.F32()[lo*c.Heads:hi*c.Heads], s.q.Mat().RowSlice(lo, hi), l.keys.Mat(), l.values.Mat(), shape)
	})
}
