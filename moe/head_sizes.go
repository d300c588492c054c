package moe

// Sizes of the output's blocks and chunks. None of them depends on the number of ranks.

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
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
	shared    int // gradients of logits that are held to save partial sums of a shared gradient
}

// defaultOutputSizes returns sizes for all models. Chunks of 512 rows keep the traffic of W, and
// gradients of 2,048 rows that of dW, small next to the time of the products. A block's logits of a
// chunk are 2 MiB, so they stay in the L3 cache.
func defaultOutputSizes() outputSizes {
	return outputSizes{
		block: 1024, wholeVocab: 1 << 14,
		tile: 1 << 21, logits: 1 << 26, chunk: 512,
		gradients: 1 << 24, rows: 2048, most: 1 << 28, shared: 1 << 29,
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

// unit returns the number of the weight's rows that ranks cannot divide: those of a block.
func (s outputSizes) unit(vocab int) int {
	if size := s.blockSize(vocab); size < vocab {
		return size
	}
	return 0
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

// rounds divides sequences of whole rows into rounds. If the gradients of one sequence are too
// large, a round is part of a sequence, whether the weight's gradient is shared or not: the bits
// depend on it. They do not depend on the number of sequences in a group.
func (s outputSizes) rounds(vocab, whole, sequences int, shared bool) outputRounds {
	r := outputRounds{sequences: sequences, whole: whole, group: 1, held: whole}
	most := max(s.gradients/vocab, min(s.rows, s.most/vocab))
	if whole > most {
		r.held = max(most, leastChunk) / leastChunk * leastChunk
		return r
	}
	if shared {
		most = max(most, s.shared/vocab)
	}
	for r.group < sequences && min(2*r.group, sequences)*whole <= most {
		r.group *= 2
	}
	r.held = min(r.group, max(sequences, 1)) * whole
	return r
}

// outputRounds divides the rows of a rank in a pass into rounds, each a group of 2^i sequences or a
// part of one. The gradients of a round's logits are held at once.
type outputRounds struct {
	sequences int
	whole     int // rows per sequence
	group     int // sequences per round; 1 if a round is a part of a sequence
	held      int // rows per round, at most

	// the rows of a round are divided among ranks ranks, of this number; 0: they are not
	ranks, rank int
}

// sharers returns the number of ranks that divide rows.
func (r outputRounds) sharers() int { return max(r.ranks, 1) }

// room returns the most rows of a round that a rank has.
func (r outputRounds) room() int {
	if r.ranks == 0 {
		return r.held
	}
	const whole = format.MXBlock // so that sums go on where they would be with one rank
	return (r.held + r.ranks*whole - 1) / (r.ranks * whole) * whole
}

// part returns the rows [lo, hi) of a round that a rank has.
func (r outputRounds) part(round, rank int) (lo, hi int) {
	if lo, hi = r.rows(round); r.ranks == 0 {
		return lo, hi
	}
	return min(lo+rank*r.room(), hi), min(lo+(rank+1)*r.room(), hi)
}

// parts returns the number of rounds of a group.
func (r outputRounds) parts() int { return (r.whole + r.held - 1) / r.held }

// groups returns the number of contributions to the weight's gradient.
func (r outputRounds) groups() int { return (r.sequences + r.group - 1) / r.group }

func (r outputRounds) count() int { return r.groups() * r.parts() }

// rows returns the rows [lo, hi) of a round.
func (r outputRounds) rows(round int) (lo, hi int) {
	first := round / r.parts() * r.group
	end := min(first+r.group, r.sequences) * r.whole
	lo = first*r.whole + round%r.parts()*r.held
	return lo, min(lo+r.held, end)
}
