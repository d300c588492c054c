package moe

// Sizes of the output's blocks and chunks. None of them depends on the number of ranks.

import (
	"math/bits"

	"spmoe/tensor"
)

// outputSizes bounds the blocks, the chunks and the memory of the output. Chunks have at least
// leastChunk rows all the same.
type outputSizes struct {
	block      int // tokens of the vocabulary in a block
	wholeVocab int // vocabularies up to this size are a single block

	tile   int // logits of a chunk with a single block
	logits int // logits of a chunk with several blocks
	chunk  int // rows of a chunk with several blocks

	gradients int // gradients of logits that are held at once
	rows      int // rows whose gradients are held even if they are more than that
	most      int // gradients of logits that are never exceeded
}

// defaultOutputSizes returns sizes for all models. Chunks of 512 rows keep the traffic of W, and
// gradients of 2,048 rows that of dW, small next to the time of the products. A block's logits of a
// chunk are 2 MiB, so they stay in the L3 cache.
func defaultOutputSizes() outputSizes {
	return outputSizes{
		block: 1024, wholeVocab: 1 << 14,
		tile: 1 << 21, logits: 1 << 26, chunk: 512,
		gradients: 1 << 24, rows: 2048, most: 1 << 28,
	}
}

const leastChunk = 16

// blocked is a matrix of [rows, vocab], stored block by block: each block of columns is contiguous.
type blocked struct {
	data tensor.Tensor
	rows int
}

func newBlocked(to *tensor.Arena, dtype tensor.DType, rows, vocab int) blocked {
	return blocked{to.New(dtype, rows*vocab), rows}
}

// block returns columns [lo, hi), which must be a block.
func (b blocked) block(lo, hi int) tensor.Matrix {
	return b.data.Slice(b.rows*lo, b.rows*hi).Reshape(b.rows, hi-lo).Mat()
}

// blockSize returns the size of the blocks of a vocabulary, except perhaps the last: a multiple of
// 64, so that no block splits a cache line or a step of a product.
func (s outputSizes) blockSize(vocab int) int {
	if vocab <= s.wholeVocab {
		return vocab
	}
	return min((s.block+63)/64*64, vocab)
}

// blocks calls f for the blocks [lo, hi) of a vocabulary.
func (s outputSizes) blocks(vocab int, f func(lo, hi int)) {
	size := s.blockSize(vocab)
	for lo := 0; lo < vocab; lo += size {
		f(lo, min(lo+size, vocab))
	}
}

// chunkRows returns the number of rows whose logits are held at once: whole sequences, or equal
// parts of one. The rows of a chunk belong to one prediction each, next to each other.
func (s outputSizes) chunkRows(vocab, predictions, seq int) int {
	bound := s.tile
	if s.blockSize(vocab) < vocab {
		bound = min(s.logits, s.chunk*vocab)
	}
	most := max(bound/vocab, leastChunk)
	if most >= seq {
		if predictions == 1 {
			return most / seq * seq
		}
		return seq
	}
	parts := (seq + most - 1) / most
	return (seq + parts - 1) / parts
}

// heldRows returns the number of sequences whose gradients are held at once, a power of two, and
// the number of their rows. whole is the number of rows per sequence. If the gradients of one
// sequence are too large, the rows are fewer than a sequence has.
func (s outputSizes) heldRows(vocab, whole, sequences int) (group, held int) {
	most := max(s.gradients/vocab, min(s.rows, s.most/vocab))
	group = 1
	for group < sequences && 2*group*whole <= most {
		group *= 2
	}
	if held = group * whole; held > most {
		held = max(most, leastChunk) / leastChunk * leastChunk
	}
	return group, held
}

// OutputScratch returns the bytes that the output needs besides its weights, in a pass over some
// sequences of seq tokens, with activations of the given type: logits of a chunk, their gradients,
// and partial sums of the weight's gradient. adds says that the pass adds to an earlier pass's
// gradient.
func (c Config) OutputScratch(sequences, seq int, dtype tensor.DType, adds bool) int64 {
	sizes, predictions := defaultOutputSizes(), 1+min(c.MTPLayers, 1)
	whole := predictions * seq
	group, held := sizes.heldRows(c.Vocab, whole, max(sequences, 1))
	rows := min(sizes.chunkRows(c.Vocab, predictions, seq), held)
	bytes := int64(4*rows+dtype.Size()*held) * int64(c.Vocab)
	leaves := (sequences + group - 1) / group
	sums := bits.Len(uint(max(leaves, 1) - 1))
	if held < whole && leaves > 1 {
		sums++ // contributions are not added to their siblings in place
	}
	if leaves > 1 && !adds {
		sums-- // the first is the gradient itself
	}
	return bytes + int64(sums)*4*int64(c.Vocab)*int64(c.Dim)
}
