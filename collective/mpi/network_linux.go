//go:build mpi

package mpi

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"spmoe/collective"
)

// network carries messages by MPI_Isend and MPI_Irecv. MPI makes progress only while it is called:
// by waiting ranks, and by a goroutine, so that messages also travel while ranks compute.
type network struct {
	mu       sync.Mutex // protects all that follows: MPI is called by one thread at a time
	requests C.spmoe_requests
	active   []active // in the order of requests
	urgent   int      // number of active transfers that a rank will wait for soon
	ended    []C.spmoe_ended
	tags     int
	closed   bool

	wake chan struct{} // something is urgent, or the network is closed
	gone chan struct{}
}

// active is a transfer in progress. Its memory, if it belongs to Go, must not move or be freed.
type active struct {
	transfer *collective.Transfer
	pinned   *runtime.Pinner
}

func newNetwork(p *Process) *network {
	n := &network{tags: int(C.spmoe_tags()), wake: make(chan struct{}, 1), gone: make(chan struct{})}
	go n.run()
	return n
}

// Start implements [collective.Network].
func (n *network) Start(t *collective.Transfer) {
	if err := n.start(t); err != nil {
		t.End(0, err)
		return
	}
	if t.Tag != collective.PulseTag {
		n.wakeUp()
	}
}

func (n *network) wakeUp() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *network) start(t *collective.Transfer) error {
	if len(t.Data) > math.MaxInt32 || t.Tag > n.tags {
		return fmt.Errorf("a message of %d bytes with tag %d: this MPI takes at most %d bytes and tag %d", len(t.Data), t.Tag, math.MaxInt32, n.tags)
	}
	a := active{transfer: t, pinned: new(runtime.Pinner)}
	data := unsafe.Pointer(unsafe.SliceData(t.Data))
	a.pinned.Pin(data)
	receives := C.int(0)
	if t.Receives {
		receives = 1
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	rc := C.spmoe_start(&n.requests, C.int(len(n.active)), receives, data, C.int(len(t.Data)), C.int(t.Peer), C.int(t.Tag))
	if rc != C.MPI_SUCCESS {
		a.pinned.Unpin()
		return failed(rc)
	}
	n.active = append(n.active, a)
	if t.Tag != collective.PulseTag {
		n.urgent++
	}
	return nil
}

// Progress implements [collective.Network].
func (n *network) Progress() {
	if n.mu.TryLock() {
		n.move()
		n.mu.Unlock()
	}
}

// move lets MPI make progress, and ends the completed transfers.
func (n *network) move() {
	if len(n.active) == 0 {
		return
	}
	if len(n.ended) < len(n.active) {
		n.ended = make([]C.spmoe_ended, 2*len(n.active))
	}
	var count C.int
	if rc := C.spmoe_test(&n.requests, C.int(len(n.active)), &n.ended[0], &count); rc != C.MPI_SUCCESS {
		for _, a := range n.active {
			a.transfer.End(0, failed(rc))
		}
		n.active, n.urgent = nil, 0
		return
	}
	ended := n.ended[:count]
	// In descending order, so that the element that fills a gap is not a gap itself.
	slices.SortFunc(ended, func(a, b C.spmoe_ended) int { return int(b.index - a.index) })
	for _, e := range ended {
		a, last := n.active[e.index], len(n.active)-1
		n.active[e.index] = n.active[last]
		C.spmoe_replace(&n.requests, e.index, C.int(last))
		n.active = n.active[:last]
		a.pinned.Unpin()
		t, bytes, err := a.transfer, int(e.bytes), error(nil)
		if !t.Receives {
			bytes = len(t.Data)
		}
		if e.error != C.MPI_SUCCESS {
			err = failed(e.error)
		}
		if t.Tag != collective.PulseTag {
			n.urgent--
		}
		t.End(bytes, err)
	}
}

const (
	// urgentPause is the pause between moves while a rank waits for a message. Socket buffers hold
	// what arrives meanwhile.
	urgentPause = 20 * time.Microsecond
	idlePause   = 5 * time.Millisecond
)

// run moves the transfers that no rank waits for.
func (n *network) run() {
	defer close(n.gone)
	idle := time.NewTicker(idlePause)
	defer idle.Stop()
	for {
		n.mu.Lock()
		n.move()
		urgent, closed := n.urgent > 0, n.closed
		n.mu.Unlock()
		switch {
		case closed:
			return
		case urgent:
			time.Sleep(urgentPause)
		default:
			select {
			case <-n.wake:
			case <-idle.C:
			}
		}
	}
}

func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.wakeUp()
	<-n.gone
}

// AllToAllV is MPI's own: see [collective.AllToAllV]. Counts and displacements are in bytes.
func (n *network) AllToAllV(dst []byte, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int) error {
	var lists [4][]C.int
	for i, list := range [][]int{sendCounts, sendDispls, recvCounts, recvDispls} {
		lists[i] = make([]C.int, len(list))
		for j, v := range list {
			if v > math.MaxInt32 {
				return fmt.Errorf("an all-to-all-v of MPI takes counts and displacements up to %d bytes, not %d", math.MaxInt32, v)
			}
			lists[i][j] = C.int(v)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	rc := C.spmoe_exchange(unsafe.Pointer(unsafe.SliceData(src)), &lists[0][0], &lists[1][0], unsafe.Pointer(unsafe.SliceData(dst)), &lists[2][0], &lists[3][0])
	if rc != C.MPI_SUCCESS {
		return failed(rc)
	}
	return nil
}
