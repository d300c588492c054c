package moe

// What the ranks of a host hold together: one copy of the dense group and, of each expert with
// replicas, one copy for these. A copy is weights, their quantized forms and gradients. Each weight
// is quantized by one rank. Each rank computes its own rows of a weight's gradient, from the tokens
// of the host's ranks. So the FP32 gradients exist once per host, no rank adds up those of others,
// and the work is shared evenly.
//
// The gradient of a weight is a balanced binary tree over the ranks, as in collective.AllReduce, of
// the trees over the sequences of each rank: see tensor.Wgrad. The sums of several passes are added
// pass by pass, and so are those of groups that each rank or each host holds: see passSums. The
// gradient of an expert is one product over the rows of all its replicas, in the order that they
// have on a single rank.

import (
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/collective"
	"spmoe/tensor"
)

// host is a rank's end of what its host shares, or of experts whose replicas are on several hosts. A
// nil host shares nothing.
type host struct {
	*peers
	offset  int // the rank that computes the first rows of the next weight
	mine    [][]byte
	waiting []wgrad
	order   []int // of the ranks' shares, if they are on several hosts: see [Group.Slices]
}

// wgrad is the gradient of a layer's weight, whose operands are complete and do not change until it
// is computed.
type wgrad struct {
	layer *linear
	dy, x *activation
	rows  []wgradRows // of an expert, instead of dy and x: those of each pass
}

// newHost returns nil if each rank must have a copy of its own, because it is the only one of c on
// its host, or because hosts have unequal numbers of ranks. local has the ranks of c on this host,
// if there are several hosts.
func newHost(c, local *collective.Comm) *host {
	if c != nil && len(c.Hosts()) > 1 {
		c = local
	}
	if c == nil || c.Size() == 1 {
		return nil
	}
	return &host{peers: newPeers(c, c)}
}

// first reports whether this rank allocates the memory of the host.
func (h *host) first() bool { return h == nil || h.comm.Rank() == 0 }

// allocate returns zeroed memory from an allocator: that of the first rank, for all ranks. It is
// collective unless h is nil.
func (h *host) allocate(from memory.Allocator, size int) ([]byte, error) {
	if _, dry := from.(tensor.DryMemory); dry {
		return from.Allocate(size), nil
	}
	var mine [][]byte
	if h.first() {
		mine = [][]byte{tensor.NewIn(from, tensor.UINT8, size).Bytes()}
	}
	if h == nil {
		return mine[0], nil
	}
	all, err := h.comm.OpenBuffers(mine)
	if err != nil {
		return nil, fmt.Errorf("sharing weights: %w", err)
	}
	shared, err := all.Of(0)
	if err == nil && (len(shared) != 1 || len(shared[0]) != size) {
		err = fmt.Errorf("sharing weights: rank 0 has other memory than %d bytes", size)
	}
	if closed := all.Close(0); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	return shared[0], nil
}

// sharedMemory allocates memory that the ranks of a host share. Each call is collective, and all
// ranks ask for the same sizes.
type sharedMemory struct {
	host *host
	from memory.Allocator
	err  error // the first one; memory is then this rank's own
}

// Allocate implements memory.Allocator.
func (s *sharedMemory) Allocate(size int) []byte {
	if s.err == nil {
		var b []byte
		if b, s.err = s.host.allocate(s.from, size); s.err == nil {
			return b
		}
	}
	return tensor.New(tensor.UINT8, size).Bytes()
}

// Reallocate implements memory.Allocator. Arenas do not call it.
func (s *sharedMemory) Reallocate(size int, b []byte) []byte {
	to := s.Allocate(size)
	copy(to, b)
	return to
}

// Free implements memory.Allocator. The memory lives as long as the model.
func (s *sharedMemory) Free([]byte) {}

// share returns the layers whose weights this rank quantizes. The largest are given away first,
// each to the rank that has least to do.
func (h *host) share(layers []*linear) (mine []*linear) {
	if h == nil {
		return layers
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b *linear) int { return b.W.Len() - a.W.Len() })
	work := make([]int, h.comm.Size())
	for _, l := range layers {
		to := slices.Index(work, slices.Min(work))
		work[to] += l.W.Len()
		if to == h.comm.Rank() {
			mine = append(mine, l)
		}
	}
	return mine
}

// leastWgradRows is the least number of rows of a gradient that a rank computes, because products
// of fewer rows use another kernel, which gives other bits. Their first row is a multiple of
// wgradTile, or of the weight's own unit.
const (
	leastWgradRows = 128
	wgradTile      = 32
)

// divide returns the rows of the next weight that each rank computes, of n, in whole units. If
// there are too few for all ranks, the first rank to get some changes from weight to weight.
func (h *host) divide(n, unit int) [][2]int {
	ranks := h.comm.Size()
	parts := divideRows(n, ranks, unit)
	all := make([][2]int, ranks)
	for part := range parts {
		rank := (part + h.offset) % ranks
		if h.order != nil { // parts follow each other in this order
			rank = h.order[(part*ranks+h.offset)/len(parts)]
		}
		all[rank] = parts[part]
	}
	h.offset = (h.offset + len(parts)) % ranks
	return all
}

// divideRows divides n rows of a gradient into up to most parts, in whole units.
func divideRows(n, most, unit int) (parts [][2]int) {
	if unit == 0 {
		unit = wgradTile
	}
	count, units := max(min(n/max(leastWgradRows, unit), most), 1), (n+unit-1)/unit
	for part := range count {
		parts = append(parts, [2]int{min(units*part/count*unit, n), min(units*(part+1)/count*unit, n)})
	}
	return parts
}

// divideRows sets which rows of the gradient this rank computes.
func (w *weight) divideRows() {
	n := w.Grad.Mat().Rows
	if w.host == nil {
		w.rows = [2]int{0, n}
		return
	}
	w.shares = w.host.divide(n, w.unit)
	w.rows = w.shares[w.host.comm.Rank()]
}

// add leaves the gradient of a layer's weight to the next call of compute.
func (h *host) add(l *linear, s *linearState) {
	h.waiting = append(h.waiting, wgrad{layer: l, dy: &s.dy, x: s.x})
}

// computeShared computes the gradients that wait, of all groups that ranks share. It is collective.
func (m *Model) computeShared(p phase) error {
	for _, g := range m.Groups {
		if err := g.together.compute(p); err != nil {
			return err
		}
	}
	return nil
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
	for _, w := range all {
		n := w.buffersLen()
		if err = w.compute(p, peers.lists, at, n); err != nil {
			break
		}
		peers.bytes += w.bytesRead(p, peers.lists, at, n)
		at += n
	}
	return peers.close(p.ex, err)
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
func (w wgrad) compute(p phase, lists [][][]byte, at, n int) error {
	l, own := w.layer, w.layer.piece(p)
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	switch {
	case w.rows != nil:
		return w.computeExperts(p, lists, at)
	case p.cp != nil:
		return w.computeParts(p, lists, at, n)
	case own[0] < own[1]:
		sum := l.gradientTree(p, own, len(lists), true)
		for r, list := range lists {
			to, adds := sum.next()
			if !w.product(p, to, own, adds, false, list[at:at+n]) {
				return fmt.Errorf("the operands of rank %d do not fit", r)
			}
			sum.push()
		}
	}
	p.pushGrad(&w.layer.weight)
	return nil
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
		return w.rowsRead(p.ex, lists, at, n)
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

// rowBytes returns the bytes of a row of the first buffer.
func (w wgrad) rowBytes() int {
	if w.layer.mx.quantizesWgrad() {
		return w.dy.cols.Codes.Dim(1)
	}
	return w.dy.Dim(1) * w.dy.DType().Size()
}

// product computes rows of the gradient over the tokens of one rank. goesOn says that
// they go on with the chain of sums in to. It returns false if the operands in list do not fit the
// weight.
func (w wgrad) product(p phase, to tensor.Tensor, own [2]int, adds, goesOn bool, list [][]byte) bool {
	l, seq := w.layer, p.batch.Seq
	lo, hi := own[0], own[1]
	rows := len(list[0]) / w.rowBytes()
	switch {
	case len(list[0]) == 0:
		if !adds {
			tensor.Zero(p.ex, to)
		}
		return true
	case len(list) == 2:
		dy, ok := rowsOf(list[0], w.dy.DType(), rows, l.W.Dim(-2))
		x, fits := rowsOf(list[1], w.x.DType(), rows, l.W.Dim(-1))
		if ok = ok && fits; ok && goesOn {
			l.sum.MultiplyOn(p.ex, to.Mat(), dy.ColSlice(lo, hi).T(), x)
		} else if ok {
			l.sum.MultiplyWgrad(p.ex, to.Mat(), dy.ColSlice(lo, hi), x, seq, adds)
		}
		return ok
	default:
		dy, ok := w.dy.cols.Like(rows, list[0], list[1], list[2])
		x, fits := w.x.cols.Like(rows, list[3], list[4], list[5])
		ok = ok && fits
		span := l.mx.wholeBlocks(seq, rows)
		if goesOn {
			span = 0
		}
		if ok {
			l.mx.Sum.WgradRows(p.ex, to.Mat(), dy, x, lo, span, adds || goesOn)
		}
		return ok
	}
}
