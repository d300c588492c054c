package moe

// Gradients of experts with replicas. The rows of an expert are those of all replicas, in the order
// that they have on a single rank. They are read where they lie, and one product gives the gradient
// with the bits of one rank. A sum over replicas would have others: a product adds row by row, and
// a quantized block may have rows of two replicas. The replicas divide the experts or, if they are
// more than these, the rows of each gradient.

import "spmoe/tensor"

// rowBuffers is the number of buffers in which peers read rows: dy, x and the ends of the groups.
const rowBuffers = 3

// buffers appends the memory that peers read.
func (r *wgradRows) buffers(ex *tensor.Exec, to [][]byte) [][]byte {
	ends := ex.New(tensor.INT32, len(r.ends)) // the rows' own may be memory that peers cannot read
	if !ex.Dry() {
		copy(ends.I32(), r.ends)
	}
	return append(to, r.dy.Bytes(), r.x.Bytes(), ends.Bytes())
}

// of returns the rows of a peer, from its buffers.
func (r *wgradRows) of(ex *tensor.Exec, list [][]byte) (peer wgradRows) {
	rows := len(list[0]) / (r.dy.Dim(1) * r.dy.DType().Size())
	peer.ends = ex.Ints(len(r.ends))
	if ex.Dry() {
		copy(peer.ends, r.ends)
	} else {
		copy(intBytes(peer.ends), list[2])
	}
	peer.dy = rowTensor(list[0], r.dy.DType(), rows, r.dy.Dim(1))
	peer.x = rowTensor(list[1], r.x.DType(), rows, r.x.Dim(1))
	return peer
}

// rowTensor returns memory as a matrix, which may have no rows.
func rowTensor(b []byte, dtype tensor.DType, rows, cols int) tensor.Tensor {
	if rows == 0 {
		return tensor.New(dtype, 0, cols)
	}
	return tensor.FromBytes(b, dtype, rows, cols)
}

// bytes returns the bytes of a row of both operands.
func (r *wgradRows) bytes() int {
	return r.dy.Dim(1)*r.dy.DType().Size() + r.x.Dim(1)*r.x.DType().Size()
}

// rowsRead returns the bytes of rows that this rank reads, if it computes some rows of gradients.
func (w wgrad) rowsRead(ex *tensor.Exec, lists [][][]byte, at, n int, own [2]int) (sum int) {
	first, end := experts(own, w.layer.W.Dim(1))
	size := w.rows[0].bytes()
	for _, list := range lists {
		for i := at; i < at+n; i += rowBuffers {
			r := w.rows[(i-at)/rowBuffers]
			if !ex.Dry() {
				r.ends = tensor.FromBytes(list[i+2], tensor.INT32, len(list[i+2])/4).I32()
			}
			lo, hi := groupsOf(r.ends, first, end)
			sum += (hi - lo) * size
		}
	}
	return sum
}

// store returns where the rows are from.
func (w wgrad) store() *rowStore { return w.layer.owner.(*rowSums).store }

// computeExperts computes the gradients of this rank's share of the experts from the rows of all
// their replicas: lists has the buffers of each rank, from number at on. The rows of a pass have
// the order of the ranks, and passes follow each other, as on a single rank.
func (w wgrad) computeExperts(p phase, lists [][][]byte, at int) {
	l, parts := w.layer, make([]wgradRows, 0, len(w.rows)*len(lists))
	for i := range w.rows {
		for _, list := range lists {
			parts = append(parts, w.rows[i].of(p.ex, list[at+i*rowBuffers:][:rowBuffers]))
		}
	}
	if n := l.W.Dim(1); l.rows[0] < l.rows[1] {
		first, end := experts(l.rows, n)
		w.store().wgrad(p, l, parts, first, end)
	}
	p.pushGrad(&l.weight)
}
