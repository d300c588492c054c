package moe

import "spmoe/tensor"

// Cache holds what attention needs of the earlier tokens of a sequence: a row for each layer and
// token. The MTP module caches nothing.
type Cache struct {
	rows     []tensor.Tensor // by layer, of those on this rank: [capacity, elements of a row]
	capacity int
	tokens   int
}

// NewCache returns a cache for a sequence of up to capacity tokens. It takes
// capacity·Config.CacheBytes bytes on all ranks of a pipeline together.
func (d *Decoder) NewCache(capacity int) *Cache {
	c := &Cache{rows: make([]tensor.Tensor, len(d.layers)), capacity: capacity}
	for _, m := range d.stages {
		for _, b := range m.blocks {
			c.rows[b.layer] = tensor.New(m.precision.DType, capacity, m.Config.kind().cacheRow())
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

// CacheBytes returns the bytes per token of a Cache with elements of dtype.
func (c Config) CacheBytes(dtype tensor.DType) int {
	return c.Layers * c.kind().cacheRow() * dtype.Size()
}

// row returns the rows of a layer for the tokens that this pass adds, and the rows of all tokens.
func (s extension) row(layer int) (added, all tensor.Matrix) {
	end := s.cache.tokens + s.tokens
	rows := s.cache.rows[layer]
	return rows.Slice(s.cache.tokens, end).Mat(), rows.Slice(0, end).Mat()
}
