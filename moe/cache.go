package moe

import "spmoe/tensor"

// Cache is what a sequence keeps of its tokens for those that follow: for each layer the latent
// that keys and values are expanded from, behind its norm, and the rotary key that all heads share,
// rotated. That is all of it; the MTP module keeps nothing.
type Cache struct {
	rows   []tensor.Tensor // of each layer: [capacity, kvRank + ropeDim]
	tokens int
}

// NewCache returns room for a sequence of up to capacity tokens: capacity·Config.CacheBytes bytes.
func (d *Decoder) NewCache(capacity int) *Cache {
	m := d.model
	c := &Cache{}
	for range m.blocks {
		c.rows = append(c.rows, tensor.New(m.precision.DType, capacity, m.Config.cacheRow()))
	}
	return c
}

// Tokens returns the number of tokens that are kept.
func (c *Cache) Tokens() int { return c.tokens }

// Capacity returns the most tokens that can be kept.
func (c *Cache) Capacity() int { return c.rows[0].Dim(0) }

// Reset forgets all tokens.
func (c *Cache) Reset() { c.tokens = 0 }

// cacheRow is the elements that a layer keeps of a token.
func (c Config) cacheRow() int { return c.KVRank + c.RopeDim }

// CacheBytes returns the bytes that one token takes in a Cache: layers·(kvRank + ropeDim) elements
// of dtype.
func (c Config) CacheBytes(dtype tensor.DType) int { return c.Layers * c.cacheRow() * dtype.Size() }

// row returns the rows of a layer that hold the tokens of s in this pass, and those of all its
// tokens.
func (s growing) row(layer int) (added, all tensor.Matrix) {
	end := s.cache.tokens + s.tokens
	rows := s.cache.rows[layer]
	return rows.Slice(s.cache.tokens, end).Mat(), rows.Slice(0, end).Mat()
}
