package collective

// Collectives between hosts that move elements. What a host needs of a remote rank crosses the
// network once, to that rank's proxy, and the other ranks of the host copy it from the proxy's
// memory.

import (
	"fmt"
	"time"
)

// collect lets the network execute an all-to-all-v of the world, if it can. Counts are in elements
// of elem bytes.
func (c *Comm) collect(dst []byte, recvCounts, recvDispls []int, src []byte, sendCounts, sendDispls []int, elem int) (done bool, err error) {
	n, ok := c.group.world.network.(collector)
	if !ok || c.group.id != worldTag {
		return false, nil
	}
	inBytes := func(list []int) []int {
		all := make([]int, len(list))
		for i, v := range list {
			all[i] = v * elem
		}
		return all
	}
	start, w := time.Now(), c.group.world
	if limit := w.limits.Wait; limit > 0 { // the network waits by itself
		peer := w.placement.First[(c.group.here+1)%len(w.placement.First)]
		defer time.AfterFunc(limit, func() {
			w.abort(peer, c.rank, fmt.Errorf("nothing has come from %s within %v", w.describeHost(peer), limit))
		}).Stop()
	}
	err = n.AllToAllV(dst, inBytes(recvCounts), inBytes(recvDispls), src, inBytes(sendCounts), inBytes(sendDispls))
	c.stats[KindAllToAllV].Wait += time.Since(start)
	c.countSent(c.allToAllSent(func(j int) int { return sendCounts[j] * elem }))
	return true, err
}

// allToAllSent returns what a rank sends to other hosts in an all-to-all, in bytes: its part for
// each rank there.
func (c *Comm) allToAllSent(bytes func(j int) int) (sent int) {
	for j := range c.Size() {
		if !c.isLocal(j) {
			sent += bytes(j)
		}
	}
	return sent
}

// allGatherSent returns what a rank sends to other hosts in allGatherHosts: its part, once to each
// host.
func (c *Comm) allGatherSent(bytes int) int { return (len(c.group.hosts) - 1) * bytes }

// allGatherHosts sets the parts of dst that come from other hosts.
func allGatherHosts[T Element](c *Comm, dst, src []T, part func(j int) (lo, hi int)) error {
	g, size := c.group, elemSize[T]()
	for _, r := range g.locals() {
		if has := len(c.peers[r].bufs[1]); has != sizeOf(dst) {
			return g.broken(c.seq, r, fmt.Errorf("its destination has %d bytes, not %d", has, sizeOf(dst)))
		}
	}
	c.moved.kind = c.slot(c.rank).kind
	for h, ranks := range g.hosts {
		if h == g.here {
			continue
		}
		for _, j := range ranks {
			if lo, hi := part(j); g.proxy(g.here, j) == c.rank {
				c.moved.Recv(j, c.peers[c.rank].bufs[1][lo*size:hi*size])
			}
		}
		c.moved.Send(g.proxy(h, c.rank), bytesOf(src))
	}
	if err := c.moved.Wait(); err != nil {
		return err
	}
	if err := c.meet(c.moved.kind, true); err != nil {
		return err
	}
	for h, ranks := range g.hosts {
		if h == g.here {
			continue
		}
		for _, j := range ranks {
			lo, hi := part(j)
			received := c.peers[g.proxy(g.here, j)].bufs[1][lo*size : hi*size]
			if to := bytesOf(dst[lo:hi]); !same(to, received) {
				copy(to, received)
			}
		}
	}
	return nil
}
