package moe

// Buffers that ranks show each other. Ranks of one host open them in a window and read them in
// place. What ranks of other hosts need travels as messages.

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// peers are ranks that show each other buffers.
type peers struct {
	comm *collective.Comm // all of them
	here *collective.Comm // those on this host; nil: this one alone
	// to and from ranks of other hosts; nil: there are none
	sent, received *collective.Messages

	lists  [][][]byte // of the ranks of this host, while a window is open
	copied [][][]byte // of all ranks, if there are several hosts
}

// newPeers returns the ranks of c. here has those on this host, if there are several hosts.
func newPeers(c, here *collective.Comm) *peers {
	if len(c.Hosts()) == 1 {
		return &peers{comm: c, here: c}
	}
	return &peers{
		comm:     c,
		here:     here,
		sent:     c.NewMessages(collective.KindBuffers),
		received: c.NewMessages(collective.KindBuffers),
	}
}

// isHere reports whether a rank is on this host.
func (g *peers) isHere(rank int) bool { return g.comm.HostOf(rank) == g.comm.Host() }

// ranksHere returns the ranks on this host.
func (g *peers) ranksHere() []int { return g.comm.Hosts()[g.comm.Host()] }

// place returns the place of a rank among those of its host.
func (g *peers) place(rank int) int { return rank - g.comm.Hosts()[g.comm.HostOf(rank)][0] }

// openBuffers are the open buffers of ranks: a window, and messages on their way to other hosts.
type openBuffers struct {
	window collective.Buffers
	alone  bool                 // there is no window
	sent   *collective.Messages // nil: all have arrived
	lists  [][][]byte           // rank by rank
	bytes  int                  // that this rank has read from the window
}

// window opens buffers to the ranks of this host. All of them open the same number of buffers.
func (g *peers) window(ex *tensor.Exec, mine [][]byte) (o openBuffers, err error) {
	if g.here == nil {
		return openBuffers{alone: true, lists: append(g.lists[:0], mine)}, nil
	}
	defer ex.Enter(ex.Enter(profile.Collectives))
	o.lists = g.lists[:0]
	if o.window, err = g.here.OpenBuffers(mine); err != nil {
		return o, fmt.Errorf("opening buffers: %w", err)
	}
	for r := range g.here.Size() {
		list, failed := o.window.Of(r)
		err = cmp.Or(err, failed)
		o.lists = append(o.lists, list)
	}
	g.lists = o.lists
	if err != nil {
		return o, o.close(ex, err)
	}
	return o, nil
}

// open opens buffers to all ranks. Their lengths are the same on each rank. The ranks with the same
// place on each host send them to each other, and show the copies. The buffers in local follow
// those of ranks on this host only.
func (g *peers) open(ex *tensor.Exec, mine [][]byte, local ...[]byte) (o openBuffers, err error) {
	if g.sent == nil {
		return g.window(ex, append(slices.Clip(mine), local...))
	}
	all := append(slices.Clip(mine), local...)
	for _, rank := range g.sameplace() {
		for _, b := range mine {
			theirs := ex.New(tensor.UINT8, len(b)).Bytes()
			g.sent.Send(rank, b)
			g.received.Recv(rank, theirs)
			all = append(all, theirs)
		}
	}
	if err := g.wait(ex); err != nil {
		return o, err
	}
	if o, err = g.window(ex, all); err != nil {
		return o, err
	}
	here := o.lists
	o.lists = g.copied[:0]
	copies := 0 // of buffers of other hosts
	for host, ranks := range g.comm.Hosts() {
		first, n := 0, len(mine)+len(local)
		if host != g.comm.Host() {
			first, n = n+len(mine)*copies, len(mine)
			copies++
		}
		for place := range ranks {
			o.lists = append(o.lists, here[place][first:first+n])
		}
	}
	g.copied = o.lists
	return o, nil
}

// sameplace returns the ranks of other hosts that have this one's place.
func (g *peers) sameplace() (ranks []int) {
	for host, all := range g.comm.Hosts() {
		if host != g.comm.Host() {
			ranks = append(ranks, all[g.place(g.comm.Rank())])
		}
	}
	return ranks
}

// wait returns when all messages have arrived.
func (g *peers) wait(ex *tensor.Exec) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	received, sent := g.received.Wait(), g.sent.Wait()
	return cmp.Or(received, sent)
}

// openParts opens buffers to the ranks of this host. lists has what ranks of other hosts send to
// this one, which has arrived when openParts returns.
func (g *peers) openParts(ex *tensor.Exec, mine [][]byte, lists [][][]byte) (o openBuffers, err error) {
	if o, err = g.window(ex, mine); err != nil {
		return o, err
	}
	for i, rank := range g.ranksHere() {
		lists[rank] = o.lists[i]
	}
	o.lists, o.sent = lists, g.sent
	defer ex.Enter(ex.Enter(profile.Collectives))
	if err := g.received.Wait(); err != nil {
		return o, o.close(ex, err)
	}
	return o, nil
}

// close returns when all ranks have read what they need. err is what this rank has failed with.
func (o *openBuffers) close(ex *tensor.Exec, err error) error {
	defer ex.Enter(ex.Enter(profile.Collectives))
	if o.sent != nil {
		sent := o.sent.Wait()
		err = cmp.Or(err, sent)
	}
	if !o.alone {
		closed := o.window.Close(o.bytes)
		err = cmp.Or(err, closed)
	}
	if err != nil {
		return fmt.Errorf("buffers of ranks: %w", err)
	}
	return nil
}

// read opens buffers, calls read with those of all ranks, and closes them. read returns the bytes
// that it has read or written.
func (g *peers) read(ex *tensor.Exec, mine [][]byte, read func(lists [][][]byte) (bytes int)) error {
	mark := ex.Mark()
	defer ex.Release(mark)
	all, err := g.open(ex, mine)
	if err != nil {
		return err
	}
	all.bytes = read(all.lists)
	return all.close(ex, nil)
}

// rowBytes returns rows [lo, hi) of a matrix as bytes.
func rowBytes(t tensor.Tensor, lo, hi int) []byte {
	size := t.Dim(1) * t.DType().Size()
	return t.Bytes()[lo*size : hi*size]
}

// joined returns n buffers of ranks, from number at on, each as one buffer with the rows of all.
func joined(ex *tensor.Exec, lists [][][]byte, at, n int) (all [][]byte) {
	for i := at; i < at+n; i++ {
		first := lists[0][i]
		if n > 2 && (i-at)%3 == 2 { // the largest magnitude, which is that of all ranks
			all = append(all, first)
			continue
		}
		to := ex.New(tensor.UINT8, len(lists)*len(first)).Bytes()
		for r, list := range lists {
			if !ex.Dry() {
				copy(to[r*len(first):], list[i])
			}
		}
		all = append(all, to)
	}
	return all
}

// float64s returns memory as numbers.
func float64s(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// intBytes returns the memory of numbers.
func intBytes(n []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(n))), 4*len(n))
}
