package collective

// Several hosts: what must be otherwise than on one, and what must not.

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A rank that fails ends the ranks of all hosts, which learn who and why.
func TestFailureCrossesHosts(t *testing.T) {
	const failed = 3
	worlds := NewHosts(2, 2, 1)
	for h, err := range worlds.Run(func(c *Comm) error {
		if err := c.Barrier(); err != nil {
			return err
		}
		if c.Rank() == failed {
			return errDisk
		}
		err := c.Barrier()
		if a, ok := as[*AbortError](err); !ok || a.Rank != failed || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("rank %d got %v", c.Rank(), err)
		}
		return nil
	}) {
		of, ok := as[*RankError](err)
		if !ok || of.Rank != failed || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("host %d: Run returned %v", h, err)
		}
	}
}

// mute is a network from which nothing comes any more once it is cut.
type mute struct {
	*loopback
	cut atomic.Bool
}

func (m *mute) Start(t *Transfer) {
	if !m.cut.Load() {
		m.loopback.Start(t)
	}
}

// A host that is cut off is found lost on both sides, by name.
func TestSilentHost(t *testing.T) {
	worlds := NewHosts(2, 2)
	net := &mute{loopback: newLoopback()}
	for _, w := range worlds {
		w.network = net
		w.SetLimits(Limits{Host: 300 * time.Millisecond})
	}
	for h, err := range worlds.Run(func(c *Comm) error {
		if err := c.Barrier(); err != nil {
			return err
		}
		net.cut.Store(true)
		return c.Barrier()
	}) {
		other := []string{"host b (ranks 2 to 3) has been silent", "host a (ranks 0 to 1) has been silent"}[h]
		if err == nil || !strings.Contains(err.Error(), other) {
			t.Errorf("host %d: Run returned %v", h, err)
		}
	}
}

// A host whose ranks live but do not come is found too.
func TestLateHost(t *testing.T) {
	worlds := NewHosts(1, 2)
	for _, w := range worlds {
		w.SetLimits(Limits{Wait: 200 * time.Millisecond})
	}
	errs := worlds.Run(func(c *Comm) error {
		if c.Rank() == 0 {
			return c.Barrier()
		}
		for !c.group.world.heap.Failed() {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "nothing has come from host b (ranks 1 to 2) within") {
		t.Errorf("Run returned %v", errs[0])
	}
}

// broken refuses messages.
type broken struct{ *loopback }

func (b broken) Start(t *Transfer) {
	if t.Tag != PulseTag {
		t.End(0, errDisk)
		return
	}
	b.loopback.Start(t)
}

func TestBrokenNetwork(t *testing.T) {
	worlds := NewHosts(1, 1)
	net := broken{newLoopback()}
	for _, w := range worlds {
		w.network = net
	}
	for h, err := range worlds.Run(func(c *Comm) error { return c.Barrier() }) {
		if err == nil || !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("host %d: Run returned %v", h, err)
		}
	}
}

// Ranks of different hosts that meet in different calls all learn of it.
func TestMismatchAcrossHosts(t *testing.T) {
	errs := make([]error, 4)
	NewHosts(2, 2).Run(func(c *Comm) error {
		if c.Rank() == 3 {
			errs[3] = c.Barrier()
			return nil
		}
		errs[c.Rank()] = AllReduce(c, make([]float32, 4), Sum)
		return nil
	})
	for r, err := range errs {
		if m, ok := as[*MismatchError](err); !ok || m.Ranks != [2]int{0, 3} {
			t.Errorf("rank %d got %v", r, err)
		}
	}
}

func TestWindowOfOneHost(t *testing.T) {
	for h, err := range NewHosts(1, 1).Run(func(c *Comm) error {
		_, err := c.Open(KindDispatch, 4, 4, make([]byte, 8), nil)
		if a, ok := as[*ArgumentError](err); !ok || !strings.Contains(a.Error(), "one host only") {
			return fmt.Errorf("Open returned %v", err)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("host %d: %v", h, err)
		}
	}
}

// Calls of ranks that come from another host are as untrusted as those in shared memory.
func TestUnpackDamaged(t *testing.T) {
	var s slot
	k := call{kind: KindAllGatherV, lists: [3][]int{{1, 2, 3}}}
	k.publish(&s, 7)
	text := make([]byte, slotBytes)
	text = text[:s.pack(text)]
	var back slot
	if used, err := back.unpack(text); err != nil || used != len(text) || !slices.Equal(back.counts(listRecv, 3), []int64{1, 2, 3}) {
		t.Fatalf("%d bytes of %d read: %v", used, len(text), err)
	}
	for n := range text {
		if _, err := new(slot).unpack(text[:n]); err == nil {
			t.Fatalf("%d bytes of %d were taken for whole", n, len(text))
		}
	}
	for _, length := range []int32{-1, payloadBytes + 1, 1 << 30} {
		s.payloadLen = length
		damaged := append(slices.Clone(s.fixed()), make([]byte, 100)...)
		if _, err := new(slot).unpack(damaged); err == nil {
			t.Errorf("a payload of %d bytes was taken", length)
		}
	}
}
