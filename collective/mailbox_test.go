package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Each rank sends to its neighbor through a few boxes, at its own pace. All messages arrive, in
// order and unchanged.
func TestMailboxes(t *testing.T) {
	forKinds(t, kinds, exchangeMessages)
	forKinds(t, hostKinds, exchangeMessages)
}

func exchangeMessages(c *Comm) error {
	const boxes, most, messages = 3, 1000, 60
	m, err := c.OpenMailboxes(boxes, most)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(c.Rank()), 1))
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for sent, received := 0, 0; received < messages; {
		if rng.IntN(2) == 0 {
			m.Expect(from, received%boxes)
		}
		// as many messages on their way as there are boxes, or a rank waits for itself
		if sent < messages && sent < received+boxes && (sent == received || rng.IntN(2) == 0) {
			if err := m.Send(to, sent%boxes, message(c.Rank(), sent)); err != nil {
				return err
			}
			sent++
			continue
		}
		got, err := m.Recv(from, received%boxes)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, message(from, received)) {
			return fmt.Errorf("message %d of rank %d has %d bytes, %v …", received, from, len(got), got[:min(len(got), 4)])
		}
		if err := m.Free(from, received%boxes); err != nil {
			return err
		}
		received++
	}
	want := int64(0)
	for i := range messages {
		want += int64(len(message(c.Rank(), i)))
	}
	if s := c.Stats()[KindMessage]; s.Calls != messages || s.Bytes != want {
		return fmt.Errorf("%+v, want %d messages of %d bytes", s, messages, want)
	}
	return nil
}

// message is what a rank sends; some are empty.
func message(rank, i int) []byte {
	return bytes.Repeat([]byte{byte(rank), byte(i), 7}, i*i%300)
}

// A rank that waits for a message learns that the sender has failed, has finished, or takes too
// long.
func TestMailboxOfLostRank(t *testing.T) {
	lost := errors.New("lost")
	for name, leave := range map[string]func() error{
		"fails":    func() error { return lost },
		"finishes": func() error { return nil },
		"is stuck": func() error { time.Sleep(500 * time.Millisecond); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(2)
			w.SetLimits(Limits{Wait: 100 * time.Millisecond})
			var waited error
			err := w.Run(func(c *Comm) error {
				m, err := c.OpenMailboxes(1, 64)
				if err != nil || c.Rank() == 1 {
					return errors.Join(err, leave())
				}
				_, waited = m.Recv(1, 0)
				return waited
			})
			var abort *AbortError
			if err == nil || !errors.As(waited, &abort) || abort.Rank != 1 || !strings.Contains(waited.Error(), "a message between ranks 0 and 1") {
				t.Errorf("run: %v, the receiver: %v", err, waited)
			}
		})
	}
}
