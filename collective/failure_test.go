package collective

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

var errDisk = errors.New("disk on fire")

// A rank fails while all others wait: every one of them learns who, why, and what it was waiting
// for, then and later.
func TestAbortWakesAll(t *testing.T) {
	const n, failed = 5, 2
	w, errs := NewWorld(n), make([]error, n)
	err := w.Run(func(c *Comm) error {
		if err := c.Barrier(); err != nil {
			return err
		}
		if c.Rank() == failed {
			untilOthersWait(c)
			return errDisk
		}
		c.SetStep(7)
		errs[c.Rank()] = AllReduce(c, make([]float32, 4), Sum)
		return nil
	})
	if !errors.Is(err, errDisk) || !strings.HasPrefix(err.Error(), "rank 2:") {
		t.Errorf("Run returned %v", err)
	}
	for r, err := range errs {
		if r == failed {
			continue
		}
		a, ok := as[*AbortError](err)
		if !ok || a.Rank != failed || a.Err != errDisk || a.Step != 7 || !strings.Contains(err.Error(), "all-reduce #2 (sum of 4 float32) on world") {
			t.Errorf("rank %d got %v", r, err)
		}
	}
	if err := w.Comm(failed).Barrier(); !errors.Is(err, errDisk) {
		t.Errorf("a barrier after the abort returned %v", err)
	}
}

// Abort itself wakes ranks that are parked: here the rank that fails is not one that Run looks
// after.
func TestAbortWakesParked(t *testing.T) {
	const n = 4
	w, errs := NewWorld(n), make(chan error)
	for r := range n - 1 {
		go func() { errs <- w.Comm(r).Barrier() }()
	}
	for r := range n - 1 {
		for w.heap.Waiting(r) == 0 {
			runtime.Gosched()
		}
	}
	w.Abort(n-1, errDisk)
	for range n - 1 {
		if a, ok := as[*AbortError](<-errs); !ok || a.Rank != n-1 || a.Err != errDisk {
			t.Errorf("got %v", a)
		}
	}
}

// Ranks that wait on different communicators of the same world all wake up.
func TestAbortReachesSubcommunicators(t *testing.T) {
	const n = 6
	errs := make([]error, n)
	w := NewWorld(n)
	w.Run(func(c *Comm) error {
		sub, err := c.Split(c.Rank()%3, 0) // pairs 0-3, 1-4, 2-5
		if err != nil {
			return err
		}
		switch c.Rank() {
		case 5:
			return errDisk
		case 4:
			errs[4] = c.Barrier()
		default:
			errs[c.Rank()] = sub.Barrier()
			if c.Rank() != 1 && c.Rank() != 2 { // 0 and 3 have met
				errs[c.Rank()] = sub.Barrier()
				if errs[c.Rank()] == nil {
					errs[c.Rank()] = c.Barrier()
				}
			}
		}
		return nil
	})
	for r, err := range errs[:5] {
		if a, ok := as[*AbortError](err); !ok || a.Rank != 5 || a.Err != errDisk {
			t.Errorf("rank %d got %v", r, err)
		}
	}
}

// A rank that returns early does not leave its peers waiting, and the world is of use again after a
// run without errors.
func TestRankThatLeft(t *testing.T) {
	w := NewWorld(3)
	barriers := func(extra int) error {
		return w.Run(func(c *Comm) error {
			for i := range 2 {
				if i == 1 && c.Rank() == extra {
					return nil
				}
				if err := c.Barrier(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		if err := barriers(-1); err != nil {
			t.Fatal(err)
		}
	}
	a, ok := as[*AbortError](barriers(1))
	if !ok || a.Rank != 1 || !errors.Is(a, errLeft) {
		t.Fatalf("got %v", a)
	}
}

func TestMismatch(t *testing.T) {
	two := []int{2, 2}
	at := []int{0, 2}
	window := func(kind Kind, row, elem int) func(c *Comm) error {
		return func(c *Comm) error { _, err := c.Open(kind, row, elem, nil, nil); return err }
	}
	var f4 = func() []float32 { return make([]float32, 4) }
	calls := map[string]func(c *Comm) error{
		"barrier":         func(c *Comm) error { return c.Barrier() },
		"split":           func(c *Comm) error { _, err := c.Split(0, 0); return err },
		"sum of 4":        func(c *Comm) error { return AllReduce(c, f4(), Sum) },
		"max of 4":        func(c *Comm) error { return AllReduce(c, f4(), Max) },
		"sum of 3":        func(c *Comm) error { return AllReduce(c, f4()[:3], Sum) },
		"sum of 4 int32":  func(c *Comm) error { return AllReduce(c, make([]int32, 4), Sum) },
		"all-gather 2":    func(c *Comm) error { return AllGather(c, f4(), make([]float32, 2)) },
		"all-gather 1":    func(c *Comm) error { return AllGather(c, f4()[:2], make([]float32, 1)) },
		"all-gather-v":    func(c *Comm) error { return AllGatherV(c, f4(), make([]float32, 2), two) },
		"all-gather-v 3":  func(c *Comm) error { return AllGatherV(c, f4()[:3], make([]float32, 2-c.Rank()), []int{2, 1}) },
		"all-to-all 2":    func(c *Comm) error { return AllToAll(c, f4(), f4()) },
		"all-to-all 1":    func(c *Comm) error { return AllToAll(c, f4()[:2], f4()[:2]) },
		"all-to-all-v":    func(c *Comm) error { return AllToAllV(c, f4(), two, at, f4(), two, at) },
		"all-to-all-v 1":  func(c *Comm) error { return AllToAllV(c, f4(), two, at, f4(), []int{2 - c.Rank(), 1 + c.Rank()}, at) },
		"reduce-scatter":  func(c *Comm) error { return ReduceScatter(c, f4()[:2], f4(), two, Sum) },
		"dispatch":        window(KindDispatch, 8, 8),
		"combine":         window(KindCombine, 8, 8),
		"dispatch of 16":  window(KindDispatch, 16, 8),
		"dispatch of 4":   window(KindDispatch, 8, 4),
		"reduce-scatter1": func(c *Comm) error { return ReduceScatter(c, f4()[:3-2*c.Rank()], f4(), []int{3, 1}, Sum) },
	}
	for a, callA := range calls {
		for b, callB := range calls {
			if a == b {
				continue
			}
			t.Run(a+"/"+b, func(t *testing.T) {
				errs := everyRank(2, func(c *Comm) error {
					if c.Rank() == 0 {
						return callA(c)
					}
					return callB(c)
				})
				for r, err := range errs {
					m, ok := as[*MismatchError](err)
					if !ok {
						t.Fatalf("rank %d got %v", r, err)
					}
					if m.Calls[0] == m.Calls[1] {
						t.Errorf("the message does not say what differs: %v", m)
					}
				}
			})
		}
	}
}

// The message of an all-to-all-v names the pair whose counts differ.
func TestAllToAllVCountMismatch(t *testing.T) {
	errs := everyRank(3, func(c *Comm) error {
		send, recv, displs := []int{1, 1, 1}, []int{1, 1, 1}, []int{0, 2, 4}
		if c.Rank() == 2 {
			recv[1] = 2
		}
		return AllToAllV(c, make([]int32, 6), recv, displs, make([]int32, 6), send, displs)
	})
	for r, err := range errs {
		m, ok := as[*MismatchError](err)
		if !ok || m.Ranks != [2]int{1, 2} || !strings.Contains(m.Calls[0], "sends [1 1 1]") || !strings.Contains(m.Calls[1], "receives [1 2 1]") {
			t.Errorf("rank %d got %v", r, err)
		}
	}
}

// One rank's bad arguments are an error on every rank that names it.
func TestBadArguments(t *testing.T) {
	ok, at := []int{2, 2}, []int{0, 2}
	buf := func() []int32 { return make([]int32, 4) }
	shared := buf()
	toAll := func(recv, recvAt, send, sendAt []int) func(c *Comm) error {
		return func(c *Comm) error { return AllToAllV(c, buf(), recv, recvAt, buf(), send, sendAt) }
	}
	for _, test := range []struct {
		name, want string
		call       func(c *Comm) error
	}{
		{"gather length", "dst has 4 elements, want 6 (2 ranks with 3 each)", func(c *Comm) error { return AllGather(c, buf(), buf()[:3]) }},
		{"gatherv counts", "1 counts, want 2", func(c *Comm) error { return AllGatherV(c, buf(), buf(), []int{4}) }},
		{"gatherv own", "counts[1] = 2, but this rank's part has 1", func(c *Comm) error { return AllGatherV(c, buf(), buf()[:1], ok) }},
		{"all-to-all remainder", "src has 3 elements, which 2 ranks cannot share", func(c *Comm) error { return AllToAll(c, buf()[:3], buf()[:3]) }},
		{"all-to-all length", "dst has 2 elements, src 4", func(c *Comm) error { return AllToAll(c, buf()[:2], buf()) }},
		{"send counts", "1 sendCounts and 2 sendDispls, want 2 of each", toAll(ok, at, ok[:1], at)},
		{"send range", "sendCounts[1] = 3 at sendDispls[1] = 2 does not fit into a buffer of 4", toAll(ok, at, []int{1, 3}, at)},
		{"recv range", "recvCounts[0] = -1 at recvDispls[0] = 0 does not fit", toAll([]int{-1, 2}, at, ok, at)},
		{"to itself", "sendCounts[1] = 1, recvCounts[1] = 2", toAll(ok, at, []int{2, 1}, at)},
		{"all-to-all-v alias", "dst overlaps src", func(c *Comm) error { return AllToAllV(c, shared, ok, at, shared, ok, at) }},
		{"op", "op(9) is not Sum, Max or Min", func(c *Comm) error { return AllReduce(c, buf(), 9) }},
		{"scatter negative", "counts[0] = -1 is negative", func(c *Comm) error { return ReduceScatter(c, buf()[:2], buf(), []int{-1, 5}, Sum) }},
		{"scatter alias", "dst overlaps src: only src[2:4]", func(c *Comm) error { return ReduceScatter(c, shared[1:3], shared, ok, Sum) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := everyRank(2, func(c *Comm) error {
				if c.Rank() == 1 {
					return test.call(c)
				}
				return c.Barrier()
			})
			for r, err := range errs {
				a, isArg := as[*ArgumentError](err)
				if !isArg || a.Rank != 1 || !strings.Contains(err.Error(), test.want) {
					t.Errorf("rank %d got %v, want %q", r, err, test.want)
				}
			}
		})
	}
}
