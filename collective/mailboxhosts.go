package collective

// Messages into boxes of ranks on other hosts. The sender keeps a copy while a message travels. The
// receiver makes its box available when it expects the message.

// remoteBoxes are the messages between this rank and those of other hosts.
type remoteBoxes struct {
	tag      int               // of the messages into box 0; those of the other boxes follow
	received []*Messages       // by box: the message in it or on its way; nil: none so far
	sent     map[place]*outbox // by receiver
}

// place is a box of a rank.
type place struct{ rank, box int }

// outbox is the last message that this rank has sent into a box.
type outbox struct {
	messages *Messages
	copied   []byte
}

// newRemoteBoxes returns boxes without messages. It is collective.
func (c *Comm) newRemoteBoxes(boxes int) (b remoteBoxes, err error) {
	b = remoteBoxes{received: make([]*Messages, boxes), sent: map[place]*outbox{}}
	b.tag, err = c.reserveIDs(boxes)
	return b, err
}

// messages returns a set of messages that go into a box.
func (m *Mailboxes) messages(box int) *Messages {
	set := m.c.NewMessages(KindMessage)
	set.tag = m.remote.tag + box
	return set
}

// sendRemote is Send to another host. It waits until the last message into the box has left.
func (m *Mailboxes) sendRemote(to, box int, message []byte) error {
	out := m.remote.sent[place{to, box}]
	if out == nil {
		out = &outbox{m.messages(box), m.c.Allocator().Allocate(m.room)}
		m.remote.sent[place{to, box}] = out
	}
	if err := out.messages.Wait(); err != nil {
		return err
	}
	n := copy(out.copied, message)
	out.copied[n] = 0 // ends a message, which may be empty
	out.messages.Send(to, out.copied[:n+1])
	return nil
}

// Expect says that the next message that this rank receives from another one will be in a box. If
// it comes from another host, it may then arrive while this rank computes.
func (m *Mailboxes) Expect(from, box int) {
	if m.c.isLocal(from) {
		return
	}
	if m.remote.received[box] == nil {
		m.remote.received[box] = m.messages(box)
	}
	if in := m.remote.received[box]; in.Len() == 0 {
		in.Recv(from, m.place(m.c.rank, box))
	}
}

// recvRemote is Recv from another host.
func (m *Mailboxes) recvRemote(from, box int) ([]byte, error) {
	m.Expect(from, box)
	in := m.remote.received[box]
	if err := in.WaitFirst(1); err != nil {
		return nil, err
	}
	return m.place(m.c.rank, box)[:max(in.all[0].n-1, 0)], nil
}
