package collective

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// shared is n elements that the peers reach.
func shared(c *Comm, n int) []int64 {
	if n == 0 {
		return nil
	}
	if !c.Shared() {
		return make([]int64, n)
	}
	b := c.Allocator().Allocate(8 * n)
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// words is a buffer as the elements that it was made of.
func words(b []byte) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// Every rank writes its marks into the first buffers of all and reads their second ones; windows
// follow each other in both kinds.
func TestWindow(t *testing.T) {
	const each, rounds = 5, 6
	forKinds(t, kinds, func(c *Comm) error {
		first, second := shared(c, each*c.Size()), shared(c, each)
		for round := range rounds {
			copy(second, marks(round, c.Rank(), each))
			w, err := c.Open([]Kind{KindDispatch, KindCombine}[round%2], 8*each, 8, bytesOf(first), bytesOf(second))
			if err != nil {
				return err
			}
			for r := range c.Size() {
				there := words(w.First(r))
				copy(there[each*c.Rank():][:each], marks(round, c.Rank(), each))
				if err := wantEqual(fmt.Sprintf("second buffer of rank %d", r), words(w.Second(r)), marks(round, r, each)); err != nil {
					return err
				}
			}
			if err := w.Close(8); err != nil {
				return err
			}
			for r := range c.Size() {
				if err := wantEqual(fmt.Sprintf("what rank %d has written", r), first[each*r:][:each], marks(round, r, each)); err != nil {
					return err
				}
			}
			clear(first)
		}
		if s := c.Stats(); s[KindDispatch].Bytes != 8*rounds/2 || s[KindCombine].Bytes != 8*rounds/2 {
			return fmt.Errorf("%d windows of 8 bytes are counted as %+v", rounds, s)
		}
		return nil
	})
}

// Between processes a buffer must lie in the heap: otherwise every rank learns whose does not, and
// may go on.
func TestWindowOutsideOfHeap(t *testing.T) {
	const bad = 1
	for buffer := range 2 {
		err := runMapped([]int{3}, func(c *Comm) error {
			bufs := [2][]byte{bytesOf(shared(c, 4)), bytesOf(shared(c, 4))}
			if c.Rank() == bad {
				bufs[buffer] = make([]byte, 32)
			}
			_, err := c.Open(KindCombine, 32, 8, bufs[0], bufs[1])
			a, ok := as[*ArgumentError](err)
			want := fmt.Sprintf("cannot reach buffer %d of 32 bytes: take its memory from the communicator's Allocator", buffer+1)
			if !ok || a.Rank != bad || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want %q of rank %d", err, want, bad)
			}
			return c.Barrier()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A process that fails inside of a window does not keep its peers in it.
// However a rank ends with a window open, the others do not wait for it.
func TestWindowOfFailed(t *testing.T) {
	const failed = 2
	for how, end := range map[string]func() error{
		errDisk.Error():       func() error { return errDisk },
		"panic: out of paper": func() error { panic("out of paper") },
		errVanished.Error():   func() error { runtime.Goexit(); return nil },
	} {
		for kind, run := range kinds {
			if kind != "goroutines" && how != errDisk.Error() {
				continue // a panic ends the process
			}
			err := run(4, func(c *Comm) error {
				w, err := c.Open(KindDispatch, 8, 8, bytesOf(shared(c, 1)), nil)
				if err != nil {
					return err
				}
				if c.Rank() == failed {
					return end()
				}
				err = w.Close(0)
				if a, ok := as[*AbortError](err); !ok || a.Rank != failed || !strings.HasPrefix(a.Err.Error(), how) || !strings.HasPrefix(a.Waiting, "dispatch #1") {
					t.Errorf("%s, %s: rank %d got %v", kind, how, c.Rank(), err)
				}
				return nil
			})
			if a, ok := as[*RankError](err); !ok || a.Rank != failed || !strings.HasPrefix(a.Err.Error(), how) {
				t.Errorf("%s, %s: got %v", kind, how, err)
			}
		}
	}
}

// A rank that computes for longer than the limit ends the run by name, wherever the others wait for
// it, although its goroutine goes on.
func TestEndlessRank(t *testing.T) {
	const endless = 1
	for where, test := range map[string]struct {
		prepare, wait func(c *Comm) error
		want          string
	}{
		"before a call": {nil, (*Comm).Barrier, "rank 1: it has not come to barrier #1 within "},
		"in a window": {func(c *Comm) error { _, err := c.Open(KindDispatch, 8, 8, nil, nil); return err },
			func(c *Comm) error { return Window{c, KindDispatch}.Close(0) }, "rank 1: it has not come to dispatch #1"},
		"after the last call": {(*Comm).Barrier, func(*Comm) error { return nil }, "rank 1: it has not ended within "},
		"after a failure":     {(*Comm).Barrier, func(c *Comm) error { return errDisk }, "disk on fire; rank 1 has not ended since"},
	} {
		goOn := make(chan struct{})
		w := NewWorld(3)
		w.SetLimits(Limits{Wait: 100 * time.Millisecond})
		err := w.Run(func(c *Comm) error {
			if test.prepare != nil {
				if err := test.prepare(c); err != nil {
					return err
				}
			}
			if c.Rank() == endless {
				<-goOn
				return nil
			}
			return test.wait(c)
		})
		close(goOn)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", where, err, test.want)
		}
	}
}
