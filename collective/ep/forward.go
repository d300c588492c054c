package ep

// The exchange between hosts: what each call sends, and what a proxy does with it.

import (
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/internal/fault"
	"spmoe/mx"
	"spmoe/tensor"
)

// buffer is reusable memory.
type buffer struct{ bytes []byte }

// of returns n bytes with arbitrary content.
func (r *buffer) of(a memory.Allocator, n int) []byte {
	if n > cap(r.bytes) {
		if r.bytes != nil {
			a.Free(r.bytes)
		}
		r.bytes = a.Allocate(n)
		r.bytes = r.bytes[:cap(r.bytes)]
	}
	return r.bytes[:n]
}

// hostBuffers is the memory for one direction between this rank and another host.
type hostBuffers struct {
	header, rows, scales, weights, returned, gradients buffer
}

// message is the size in bytes of a message of rows. One is packed or stored while the next
// travels.
const message = 1 << 20

// eachPart divides rows into messages.
func eachPart(rows, rowBytes int, f func(lo, hi int)) {
	step := max(1, message/max(rowBytes, 1))
	for lo := 0; lo < rows; lo += step {
		f(lo, min(lo+step, rows))
	}
}

func (n *internode) memory() memory.Allocator { return n.comm.Allocator() }

// rowsIn allocates rows of a type.
func (n *internode) rowsIn(r *buffer, dtype tensor.DType, rows, width int) tensor.Tensor {
	return tensor.FromBytes(r.of(n.memory(), rows*width*dtype.Size()), dtype, rows, width)
}

// begin waits until the messages of the last call are sent, whose memory is reused.
func (n *internode) begin() error { return n.out.Wait() }

// expect starts to receive rows of a source.
func (n *internode) expect(source int, rows tensor.Tensor) {
	eachPart(rows.Dim(0), rowBytes(rows), func(lo, hi int) { n.in.Recv(source, rows.Slice(lo, hi).Bytes()) })
}

// quantized returns the memory for rows from a source or for a host on the MXFP8 wire.
func (n *internode) quantized(l *hostBuffers, rows, hidden int) mx.Tensor {
	return mx.Tensor{
		Format: wireCast.Format, Blocks: mx.AlongRows,
		Codes:  n.rowsIn(&l.rows, tensor.UINT8, rows, hidden),
		Scales: n.rowsIn(&l.scales, tensor.UINT8, rows, rowScales(hidden)),
	}
}

// sendRows sends the tokens' rows to the hosts that they visit, and starts to receive the rows of
// the ranks whose proxy this rank is. rest processes these.
func (n *internode) sendRows(ex *tensor.Exec, h *Handle, t transfer, wire Wire) (rest func(*tensor.Exec) error, err error) {
	if err := n.begin(); err != nil {
		return nil, err
	}
	p, x, hidden := &h.routes, t.here, t.here.Dim(1)
	for k, source := range n.sources {
		from := &p.from[k]
		from.header = n.from[k].header.of(n.memory(), from.rows+from.kept*n.expertBytes(n.here))
		n.in.Recv(source, from.header)
		if wire == MXFP8 {
			q := n.quantized(&n.from[k], from.rows, hidden)
			n.expect(source, q.Codes)
			n.in.Recv(source, q.Scales.Bytes())
		} else {
			n.expect(source, n.rowsIn(&n.from[k].rows, x.DType(), from.rows, hidden))
		}
		n.marks[k] = n.in.Len()
	}
	fault.Point(fault.BeforePut)
	for host, proxy := range n.proxies {
		to := &p.to[host]
		header := n.to[host].header.of(n.memory(), len(to.header))
		copy(header, to.header)
		n.out.Send(proxy, header)
		if wire == MXFP8 {
			n.sendQuantized(ex, host, to, x)
		} else {
			n.sendTokens(host, to, x)
		}
	}
	return func(ex *tensor.Exec) error { return n.forwardRows(ex, h, &t, wire) }, nil
}

// rowsSent returns what sendRows sends to a host, in bytes: for each token that visits it, the
// number of its choices there and its row on the wire, and for each choice the number of its
// expert.
func (n *internode) rowsSent(host int, to *route, row int) int {
	return to.rows*(1+row) + to.kept*n.expertBytes(host)
}

// sendTokens sends the rows of the tokens that visit a host, unchanged.
func (n *internode) sendTokens(host int, to *route, x tensor.Tensor) {
	rows := n.rowsIn(&n.to[host].rows, x.DType(), to.rows, x.Dim(1))
	eachPart(to.rows, rowBytes(rows), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			copyRow(rows, i, x, int(to.tokens[i]))
		}
		n.out.Send(n.proxies[host], rows.Slice(lo, hi).Bytes())
	})
}

// sendQuantized sends them as codes followed by their scales.
func (n *internode) sendQuantized(ex *tensor.Exec, host int, to *route, x tensor.Tensor) {
	mark := ex.Mark()
	defer ex.Release(mark)
	q := n.quantized(&n.to[host], to.rows, x.Dim(1))
	panel := ex.New(x.DType(), mostBatched, x.Dim(1))
	eachPart(to.rows, rowBytes(q.Codes), func(lo, hi int) {
		for first := lo; first < hi; first += mostBatched {
			rows := min(mostBatched, hi-first)
			for i := range rows {
				copyRow(panel, i, x, int(to.tokens[first+i]))
			}
			mx.Quantize(ex, q.RowSlice(first, first+rows), panel.Mat().RowSlice(0, rows), wireCast.Mode)
		}
		n.out.Send(n.proxies[host], q.Codes.Slice(lo, hi).Bytes())
	})
	n.out.Send(n.proxies[host], q.Scales.Bytes())
}

// virtual returns a transfer of a source's choices on this host, as if its tokens were this rank's.
func (t transfer) virtual(p *route) transfer {
	t.h = &Handle{tokens: p.rows, slots: t.h.slots, Sent: p.kept}
	t.owners, t.places = p.owners, p.places
	return t
}

// forwardRows stores the rows of the sources at the places of their choices, as they arrive.
func (n *internode) forwardRows(ex *tensor.Exec, h *Handle, t *transfer, wire Wire) error {
	dtype, hidden := t.here.DType(), t.here.Dim(1)
	for k, source := range n.sources {
		from, l := &h.routes.from[k], &n.from[k]
		if err := n.in.WaitFirst(n.marks[k]); err != nil {
			return err
		}
		if err := n.read(h, from, source); err != nil {
			return err
		}
		v := t.virtual(from)
		if wire == MXFP8 {
			q := n.quantized(l, from.rows, hidden)
			v.here, v.scaled = q.Codes, q.Scales
		} else {
			v.here = n.rowsIn(&l.rows, dtype, from.rows, hidden)
		}
		tensor.Parallel(ex, from.rows, from.kept*hidden*copyWork, v, put)
	}
	return n.in.Wait()
}

// backSent returns what bringBack sends to a source, in bytes: a row for each of its choices here.
func (from *route) backSent(row int) int { return from.kept * row }

// bringBack fetches the rows of this rank's choices on other hosts, and sends those of the sources'
// choices on this host. It lets t read them.
func (n *internode) bringBack(h *Handle, t *transfer) error {
	if err := n.begin(); err != nil {
		return err
	}
	p, width, dtype := &h.routes, t.there.hidden, t.there.dtype
	back, at := n.rowsIn(&n.back, dtype, p.returned, width), 0
	for host, proxy := range n.proxies {
		kept := p.to[host].kept
		n.expect(proxy, back.Slice(at, at+kept))
		at += kept
	}
	for k, source := range n.sources {
		from := &p.from[k]
		rows, next := n.rowsIn(&n.from[k].returned, dtype, from.kept, width), 0
		eachPart(from.kept, rowBytes(rows), func(lo, hi int) {
			for i := lo; i < hi; next++ {
				if place := from.places[next]; place >= 0 {
					copy(rowOf(rows, i), t.there.bytes(from.owners[next], place))
					i++
				}
			}
			n.out.Send(source, rows.Slice(lo, hi).Bytes())
		})
	}
	if err := n.in.Wait(); err != nil {
		return err
	}
	t.owners, t.places = p.backOwners, p.back
	t.there.bases[len(h.perRank)] = unsafe.Pointer(unsafe.SliceData(n.back.bytes))
	return nil
}

// gradientsSent returns what sendGradients sends to a host, in bytes: the gradient rows of the
// tokens that have visited it, and a weight for each of their choices there.
func (to *route) gradientsSent(row int) int { return to.rows*row + 4*to.kept }

// weightGradientsSent returns what forwardGradients sends to a source, in bytes: the gradient of a
// weight for each of its choices here.
func (from *route) weightGradientsSent() int { return 4 * from.kept }

// sendGradients sends the tokens' gradient rows to the hosts that they have visited, with the
// weights of their choices there. rest is as in sendRows.
func (n *internode) sendGradients(h *Handle, t transfer) (rest func(*tensor.Exec) error, err error) {
	if err := n.begin(); err != nil {
		return nil, err
	}
	p, dout := &h.routes, t.here
	for k, source := range n.sources {
		from := &p.from[k]
		n.expect(source, n.rowsIn(&n.from[k].rows, dout.DType(), from.rows, dout.Dim(1)))
		n.in.Recv(source, n.from[k].weights.of(n.memory(), 4*from.kept))
		n.marks[k] = n.in.Len()
	}
	for host, proxy := range n.proxies {
		n.in.Recv(proxy, n.to[host].gradients.of(n.memory(), 4*p.to[host].kept))
	}
	for host, proxy := range n.proxies {
		to := &p.to[host]
		n.sendTokens(host, to, dout)
		weights := n.rowsIn(&n.to[host].weights, tensor.FP32, 1, to.kept)
		for j, i := range to.choices {
			weights.F32()[j] = h.weights[i]
		}
		n.out.Send(proxy, weights.Bytes())
	}
	return func(ex *tensor.Exec) error { return n.forwardGradients(ex, h, &t) }, nil
}

// forwardGradients stores the gradients of the sources' choices on this host, and sends back the
// gradients of their weights. Then it sets those of this rank's choices on other hosts.
func (n *internode) forwardGradients(ex *tensor.Exec, h *Handle, t *transfer) error {
	p := &h.routes
	for k, source := range n.sources {
		from, l := &p.from[k], &n.from[k]
		if err := n.in.WaitFirst(n.marks[k]); err != nil {
			return err
		}
		mark := ex.Mark()
		v := t.virtual(from)
		v.here = n.rowsIn(&l.rows, t.here.DType(), from.rows, t.here.Dim(1))
		v.weights, v.dweights = ex.New(tensor.FP32, from.rows, h.slots).F32(), ex.New(tensor.FP32, from.rows, h.slots).F32()
		weights, gradients := n.rowsIn(&l.weights, tensor.FP32, 1, from.kept), n.rowsIn(&l.gradients, tensor.FP32, 1, from.kept)
		kept := 0
		for i, place := range from.places {
			if place >= 0 {
				v.weights[i] = weights.F32()[kept]
				kept++
			}
		}
		tensor.Parallel(ex, from.rows, 2*from.kept*t.here.Dim(1)*copyWork, v, putScaled)
		kept = 0
		for i, place := range from.places {
			if place >= 0 {
				gradients.F32()[kept] = v.dweights[i]
				kept++
			}
		}
		ex.Release(mark)
		n.out.Send(source, gradients.Bytes())
	}
	if err := n.in.Wait(); err != nil {
		return err
	}
	for host := range p.to {
		gradients := n.rowsIn(&n.to[host].gradients, tensor.FP32, 1, p.to[host].kept)
		for j, i := range p.to[host].choices {
			t.dweights[i] = gradients.F32()[j]
		}
	}
	return nil
}
