package moe

// Gradients that the ranks of a host compute together, each some rows from the operands of all.
// The gradient of a sequence that ranks share is one chain of sums over its parts, in their order.
// If it is on several hosts, each of them computes a piece of a weight, and the others add zeros.

import "spmoe/tensor"

// add leaves the gradient of a layer's weight to the next call of compute.
func (h *host) add(p phase, l *linear, s *linearState) {
	l.mx.completeInput(p, s.x)
	h.waiting = append(h.waiting, wgrad{layer: l, dy: &s.dy, x: s.x})
}

// compute computes the gradients that wait: the sum over the tokens of all ranks. It is collective.
func (h *host) compute(p phase) error {
	if h == nil || len(h.waiting) == 0 {
		return nil
	}
	all := h.waiting
	defer func() {
		clear(all)
		h.waiting = all[:0]
	}()
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	mine := h.mine[:0]
	for _, w := range all {
		mine = w.buffers(p.ex, mine)
	}
	h.mine = mine
	at := 0 // the buffers of a weight
	peers, err := h.openWaiting(p, mine)
	if err != nil {
		return err
	}
	if h.ring != nil {
		peers.bytes, err = h.computeRing(p, peers.lists)
		return peers.close(p.ex, err)
	}
	for _, w := range all {
		n := w.buffersLen()
		w.compute(p, peers.lists, at, n)
		peers.bytes += w.bytesRead(p, peers.lists, at, n)
		at += n
	}
	return peers.close(p.ex, nil)
}

// openWaiting opens the operands of this rank to those that compute with them.
func (h *host) openWaiting(p phase, mine [][]byte) (openBuffers, error) {
	switch {
	case h.sent != nil:
		return h.openRows(p, mine)
	case h.waiting[0].rows != nil:
		return h.window(p.ex, mine)
	}
	return p.cp.over(h).open(p.ex, mine)
}

// buffersLen returns the number of buffers.
func (w wgrad) buffersLen() int {
	if w.rows != nil {
		return len(w.rows) * rowBuffers
	}
	if w.layer.mx.quantizesWgrad() {
		return 6
	}
	return 2
}

// buffers appends the memory that the peers read.
func (w wgrad) buffers(ex *tensor.Exec, to [][]byte) [][]byte {
	for _, r := range w.rows {
		to = r.buffers(ex, to)
	}
	if w.rows != nil {
		return to
	}
	for _, a := range [...]*activation{w.dy, w.x} {
		if !w.layer.mx.quantizesWgrad() {
			to = append(to, a.Bytes())
			continue
		}
		to = append(to, a.cols.Codes.Bytes(), a.cols.Scales.Bytes(), nil)
		if a.cols.Amax.Valid() {
			to[len(to)-1] = a.cols.Amax.Bytes()
		}
	}
	return to
}

// compute computes this rank's rows from the operands of all ranks: n buffers each, from number at
// on.
func (w wgrad) compute(p phase, lists [][][]byte, at, n int) {
	l, own := w.layer, w.layer.piece(p)
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	switch {
	case w.rows != nil:
		w.computeExperts(p, lists, at)
		return
	case p.cp != nil:
		w.computeParts(p, lists, at, n)
		return
	case own[0] < own[1]:
		sum := l.gradientTree(p, own, len(lists), true)
		for _, list := range lists {
			to, adds := sum.next()
			w.product(p, to, own, adds, false, list[at:at+n])
			sum.push()
		}
	}
	p.pushGrad(&w.layer.weight)
}

// bytesRead returns the bytes of the buffers that compute reads: the columns of dy that belong to
// this rank's rows, and all of x.
func (w wgrad) bytesRead(p phase, lists [][][]byte, at, n int) (sum int) {
	piece := w.layer.piece(p)
	own := piece[1] - piece[0]
	if own == 0 {
		return 0
	}
	if w.rows != nil {
		return w.rowsRead(p.ex, lists, at, n, w.layer.rows)
	}
	for _, list := range lists {
		for i, b := range list[at : at+n] {
			if i < n/2 {
				sum += len(b) * own / w.layer.W.Dim(-2)
			} else {
				sum += len(b)
			}
		}
	}
	return sum
}

// product computes rows of the gradient over the tokens of one rank. goesOn says that
// they go on with the chain of sums in to.
func (w wgrad) product(p phase, to tensor.Tensor, own [2]int, adds, goesOn bool, list [][]byte) {
	l, seq := w.layer, p.batch.Seq
	lo, hi := own[0], own[1]
	switch {
	case len(list[0]) == 0:
		if !adds {
			tensor.Zero(p.ex, to)
		}
	case len(list) == 2:
		rows := len(list[0]) / (w.dy.Dim(1) * w.dy.DType().Size())
		dy := tensor.MatrixFromBytes(list[0], w.dy.DType(), rows, l.W.Dim(-2)).ColSlice(lo, hi)
		x := tensor.MatrixFromBytes(list[1], w.x.DType(), rows, l.W.Dim(-1))
		if goesOn {
			l.sum.MultiplyOn(p.ex, to.Mat(), dy.T(), x)
		} else {
			l.sum.MultiplyWgrad(p.ex, to.Mat(), dy, x, seq, adds)
		}
	default:
		rows := len(list[0]) / w.dy.cols.Codes.Dim(1)
		dy, x := w.dy.cols.Like(rows, list[0], list[1], list[2]), w.x.cols.Like(rows, list[3], list[4], list[5])
		span := l.mx.wholeBlocks(seq, rows)
		if goesOn {
			span = 0
		}
		l.mx.Sum.WgradRows(p.ex, to.Mat(), dy, x, lo, span, adds || goesOn)
	}
}

// piece returns the rows of Grad that this rank computes in a pass: those of its own or, if a
// sequence is on several hosts, a part of those that ranks with its place have on each host.
func (w *weight) piece(p phase) [2]int {
	if p.cp == nil || p.cp.group.sent == nil {
		return w.rows
	}
	comm := p.cp.group.comm
	parts := divideRows(w.ownRows(), len(comm.Hosts()), w.unit)
	if host := comm.Host(); host < len(parts) {
		return [2]int{w.rows[0] + parts[host][0], w.rows[0] + parts[host][1]}
	}
	return [2]int{w.rows[0], w.rows[0]}
}

// computeParts is compute for ranks that have parts of sequences. If sums cannot go on, the parts
// of a sequence are joined first.
func (w wgrad) computeParts(p phase, lists [][][]byte, at, n int) {
	l, parts, own := w.layer, p.cp.ranks, w.layer.piece(p)
	if l.ownRows() == 0 {
		return
	}
	sum := l.gradientTree(p, own, len(lists)/parts, false)
	for first := 0; first < len(lists) && own[0] < own[1]; first += parts {
		to, _ := sum.next()
		some := lists[first : first+parts]
		begin := at // of the buffers of the weight
		if !l.goesOn() {
			some, begin = [][][]byte{joined(p.ex, some, at, n)}, 0
		}
		for i, list := range some {
			w.product(p, to, own, false, i > 0, list[begin:begin+n])
		}
		sum.push()
	}
	p.pushGrad(&l.weight)
}

// goesOn reports whether a sum over rows can go on with that of earlier ones.
func (l *linear) goesOn() bool {
	if !l.mx.quantizesWgrad() {
		return (&Recipe{Sum: l.sum}).chains()
	}
	return l.mx.chains()
}
