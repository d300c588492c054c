package moe

// Buffers between ranks of a group on several hosts: the rows of experts with replicas, and parts
// of sequences. Ranks of one host open buffers to each other in a window and read them in place.
// Parts of them travel to ranks of other hosts, as messages.

import (
	"cmp"

	"spmoe/collective"
	"spmoe/tensor/profile"
)

// remote is this rank's end of a group on several hosts.
type remote struct {
	comm           *collective.Comm
	here           *host // the ranks of the group on this host; nil: this one alone is
	sent, received *collective.Messages
}

func newRemote(c *collective.Comm, here *host) *remote {
	return &remote{c, here, c.NewMessages(collective.KindBuffers), c.NewMessages(collective.KindBuffers)}
}

// isHere reports whether a rank of the group is on this host.
func (r *remote) isHere(rank int) bool { return r == nil || r.comm.HostOf(rank) == r.comm.Host() }

// place returns the place of a rank among those of its host in the group.
func (r *remote) place(rank int) int { return rank - r.comm.Hosts()[r.comm.HostOf(rank)][0] }

// at returns the rank with a place on a host of the group.
func (r *remote) at(host, place int) int { return r.comm.Hosts()[host][place] }

// open opens buffers to the ranks of this host, and returns those of all ranks when the messages on
// their way have arrived. lists has the buffers of the ranks of other hosts.
func (r *remote) open(p phase, mine [][]byte, lists [][][]byte) (o openBuffers, err error) {
	if lists[r.comm.Rank()] = mine; r.here == nil {
		o.alone = true
	} else if o, err = r.here.open(p, mine); err != nil {
		return o, err
	} else {
		for i, rank := range r.comm.Hosts()[r.comm.Host()] {
			lists[rank] = o.lists[i]
		}
	}
	o.lists, o.remote = lists, r
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	if err := r.received.Wait(); err != nil {
		return o, o.close(p, err)
	}
	return o, nil
}

// parts says what a rank sends to another one, or receives from it: buffers of the same lengths on
// both ends.
type parts func(rank int) [][]byte

// exchange starts to send and to receive parts of buffers. It returns what will come from each rank
// of another host.
func (r *remote) exchange(to, from parts) (lists [][][]byte) {
	lists = make([][][]byte, r.comm.Size())
	for rank := range lists {
		if r.isHere(rank) {
			continue
		}
		for _, b := range to(rank) {
			r.sent.Send(rank, b)
		}
		lists[rank] = from(rank)
		for _, b := range lists[rank] {
			r.received.Recv(rank, b)
		}
	}
	return lists
}

// wait waits for all messages.
func (r *remote) wait(p phase) error {
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	received, sent := r.received.Wait(), r.sent.Wait()
	return cmp.Or(received, sent)
}

// toHosts sends buffers to the ranks with the same place on other hosts of the group, if these are
// wanted there. It returns what has come from them, host by host: see copyOf.
func (r *remote) toHosts(p phase, mine [][]byte, wanted func(host int) bool) (all [][]byte, err error) {
	if len(mine) == 0 {
		return nil, nil
	}
	place, here := r.place(r.comm.Rank()), r.comm.Host()
	r.exchange(func(rank int) [][]byte {
		if r.place(rank) != place || !wanted(r.comm.HostOf(rank)) {
			return nil
		}
		return mine
	}, func(rank int) [][]byte {
		if r.place(rank) != place || !wanted(here) {
			return nil
		}
		theirs := p.roomFor(mine)
		all = append(all, theirs...)
		return theirs
	})
	return all, r.wait(p)
}

// copyOf returns which rank of this host has a copy of a rank's buffers, and its number among the
// copies there. That of number 0 are its own buffers.
func (r *remote) copyOf(rank int) (place, number int) {
	switch host := r.comm.HostOf(rank); {
	case host == r.comm.Host():
		return r.place(rank), 0
	case host < r.comm.Host():
		return r.place(rank), host + 1
	default:
		return r.place(rank), host
	}
}

// everywhere is for buffers that all hosts want.
func everywhere(int) bool { return true }
