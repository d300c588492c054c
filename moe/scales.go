package moe

// Scales of tensors. A format may have one FP32 scale per tensor, from its largest magnitude. The
// tensor is the rows of all ranks: of dense layers those of all tokens of a pass, and of an expert
// those of all its replicas. Otherwise codes would depend on the number of ranks. So ranks compare
// their largest magnitudes, 4 bytes per tensor, before they quantize. Operands that one rank has as
// a whole need no comparison: weights, and the rows of a deferred weight gradient.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// findAmax sets the largest magnitudes of the quantized forms of a matrix that have a scale per
// tensor. It returns how many there are. Either form may be the zero Tensor.
func findAmax(ex *tensor.Exec, x tensor.Matrix, rows, cols mx.Tensor) (n int) {
	for _, t := range [...]mx.Tensor{rows, cols} {
		if t.Amax.Valid() {
			mx.FindAmax(ex, t, x)
			n += t.Amax.Len()
		}
	}
	return n
}

// findAmax is findAmax over the ranks that have other rows of the matrix. It is collective if a
// form has a scale per tensor. If it fails, so does the pass: see Pass.failed.
func (q *mxLinear) findAmax(p phase, x tensor.Matrix, rows, cols mx.Tensor) {
	n := findAmax(p.ex, x, rows, cols)
	if n == 0 || q.peers == nil || p.failed != nil {
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	amax := p.ex.New(tensor.FP32, n).F32()
	if p.ex.Dry() {
		p.failed = q.compare(p.ex, amax)
		return
	}
	at := 0
	for _, t := range [...]mx.Tensor{rows, cols} {
		if t.Amax.Valid() {
			at += copy(amax[at:], t.Amax.F32())
		}
	}
	p.failed = q.compare(p.ex, amax)
	for _, t := range [...]mx.Tensor{rows, cols} {
		if t.Amax.Valid() {
			amax = amax[copy(t.Amax.F32(), amax):]
		}
	}
}

// compare replaces magnitudes by the largest of all ranks.
func (q *mxLinear) compare(ex *tensor.Exec, amax []float32) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	if err := collective.AllReduce(q.peers, amax, collective.Max); err != nil {
		return fmt.Errorf("layer %d, %s: comparing magnitudes of ranks: %w", q.identity.layer, q.identity.linear, err)
	}
	return nil
}
