package tensor

import (
	"fmt"
	"math"
	"math/bits"

	"spmoe/tensor/internal/vec"
)

// Attention over chosen keys, as in DeepSeek-V3.2 and V4: AttentionShape.Chosen. A tile leaves out
// keys at its ends that none of its rows has chosen, and computes all other scores. Those of keys
// that a row has not chosen become -Inf, which gives probabilities and gradients of exactly 0. The
// order of sums stays that of attention over all keys.

// KeyWords returns the words of one row of Chosen.
func (s AttentionShape) KeyWords() int { return ceilDiv(s.keys(), 64) }

// keys returns the rows of k and v in a sequence.
func (s AttentionShape) keys() int { return s.Seq + s.Extra }

// checkChosen panics unless every row has a key or a sink. A dry run has no choices to look at.
func (s AttentionShape) checkChosen(ex *Exec) {
	rows, words := s.queries(), s.KeyWords()
	if s.Sinks != nil && len(s.Sinks) != s.Heads {
		panic(fmt.Sprintf("tensor: attention of %d heads with %d sinks, want one per head", s.Heads, len(s.Sinks)))
	}
	if s.Chosen == nil || ex.dry {
		return
	}
	if len(s.Chosen) != s.Batch*rows*words {
		panic(fmt.Sprintf("tensor: attention of %d rows over %d keys with %d words of choices, want %d per row", s.Batch*rows, s.keys(), len(s.Chosen), words))
	}
	for r := range s.Batch * rows {
		b, i := r/rows, s.Seq-rows+r%rows
		row := s.Chosen[r*words : (r+1)*words]
		if s.Sinks == nil && !anyChosen(row, s.first(b, i), i+1) && !anyChosen(row, s.Seq, s.keys()) {
			panic(fmt.Sprintf("tensor: row %d of sequence %d chooses none of the keys that it may attend to", i, b))
		}
	}
}

// anyChosen reports whether a row of bits has one of [from, to).
func anyChosen(row []uint64, from, to int) bool {
	for at := from; at < to; {
		word, n := chosenBits(row, at, to)
		if word != 0 {
			return true
		}
		at += n
	}
	return false
}

// chosenBits returns the bits from key at up to the end of its word, or up to key to, and their
// number.
func chosenBits(row []uint64, at, to int) (word uint64, n int) {
	n = min(64-at%64, to-at)
	return row[at/64] >> (at % 64) & (1<<n - 1), n
}

// choose hides the keys that the query at position i has not chosen: it sets their scores to -Inf.
// The scores are those of keys from on. It returns the keys that the row attends to, which is an
// empty range if it has chosen none of seen.
func (p *headProblem) choose(seen keyRange, i, from int, scores []float32) keyRange {
	if p.Chosen == nil {
		return seen
	}
	row := p.chosenRow(i)
	if !anyChosen(row, from+seen.from, from+seen.to) {
		return keyRange{}
	}
	for at := from + seen.from; at < from+seen.to; {
		word, n := chosenBits(row, at, from+seen.to)
		for hidden := ^word & (1<<n - 1); hidden != 0; hidden &= hidden - 1 {
			scores[at-from+bits.TrailingZeros64(hidden)] = float32(math.Inf(-1))
		}
		at += n
	}
	return seen
}

// chosenRow returns the choice of the query at position i.
func (p *headProblem) chosenRow(i int) []uint64 {
	rows, words := p.queries(), p.KeyWords()
	return p.Chosen[(p.sequence*rows+i-p.before)*words:][:words]
}

// chosenKeys leaves out keys at both ends of [from, to) that no query at positions [lo, hi) has
// chosen, in steps of a word, which keep the lanes of sums. The rest may be empty.
func (p *headProblem) chosenKeys(lo, hi, from, to int) (first, end int) {
	if p.Chosen == nil {
		return from, to
	}
	for from < to && !p.someChose(lo, hi, from, min(from+64, to)) {
		from += 64
	}
	for last := to - (to-from-1)%64 - 1; from < to && !p.someChose(lo, hi, last, to); last -= 64 {
		to = last
	}
	return from, to
}

// someChose reports whether a query at positions [lo, hi) has chosen one of the keys [from, to).
// Later queries may attend to more keys.
func (p *headProblem) someChose(lo, hi, from, to int) bool {
	for i := hi - 1; i >= lo; i-- {
		if anyChosen(p.chosenRow(i), from, to) {
			return true
		}
	}
	return false
}

// addSink adds exp(sink) to the sum of a row's exponentials, which are relative to top. It returns
// the new sum, which is relative to the new top, and the factor of what was summed before.
func addSink(sink, top, sum float32) (newSum, newTop, factor float32) {
	if sum == 0 {
		return 1, sink, 0 // the row has no keys: top is not defined
	}
	if sink > top {
		factor = vec.Exp(top - sink)
		return sum*factor + 1, sink, factor
	}
	return sum + vec.Exp(sink-top), top, 1
}

// sinkGradient returns the gradient of the sink of a head from one sequence, -Σ p·delta with p =
// exp(sink - lse), in ascending order of rows.
func (p *headProblem) sinkGradient(sink float32) (sum float32) {
	for i, delta := range p.delta {
		sum -= vec.Exp(sink-p.lse[i]) * delta
	}
	return sum
}
