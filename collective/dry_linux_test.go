package collective

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// untouchable returns memory that no code can read or write.
func untouchable(t *testing.T) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// counted is what a rank counts of one call.
type counted struct {
	name   string
	failed bool
	calls  [numKinds]int64
	bytes  [numKinds]int64
	sent   int64
}

// eachCollective makes calls of every kind with n elements per rank or, in some, in total. alloc
// returns memory for elements.
func eachCollective(c *Comm, n int, alloc func(elements int) []float32) []counted {
	p, rank := c.Size(), c.Rank()
	parts, rows, at := make([]int, p), make([]int, p), make([]int, p)
	for j := range parts {
		parts[j] = n*j + j%2
		rows[j] = n * (1 + (j+rank)%3) // the same in both directions
		at[j] = sum(rows[:j])
	}
	all := []struct {
		name string
		do   func() error
	}{
		{"barrier", c.Barrier},
		{"all-gather", func() error { return AllGather(c, alloc(n*p), alloc(n)) }},
		{"all-gather-v", func() error { return AllGatherV(c, alloc(sum(parts)), alloc(parts[rank]), parts) }},
		{"all-to-all", func() error { return AllToAll(c, alloc(n*p), alloc(n*p)) }},
		{"all-to-all-v", func() error { return AllToAllV(c, alloc(sum(rows)), rows, at, alloc(sum(rows)), rows, at) }},
		{"all-reduce", func() error { return AllReduce(c, alloc(n), Sum) }},
		{"max", func() error { return AllReduce(c, alloc(n), Max) }},
		{"reduce-scatter", func() error { return ReduceScatter(c, alloc(parts[rank]), alloc(sum(parts)), parts, Sum) }},
		{"reduce-scatter in place", func() error {
			all := alloc(sum(parts))
			return ReduceScatter(c, all[sum(parts[:rank]):][:parts[rank]], all, parts, Sum)
		}},
		{"wrong length", func() error { return AllGather(c, alloc(n), alloc(n+1)) }},
		{"dispatch", func() error {
			w, err := c.Open(KindDispatch, 4, 4, bytesOf(alloc(n)), nil)
			if err != nil {
				return err
			}
			if len(w.First(p-1)) != 4*n || len(w.Second(0)) != 0 {
				return errors.Join(fmt.Errorf("a buffer of %d bytes", len(w.First(p-1))), w.Close(0))
			}
			return w.Close(7)
		}},
		{"buffers", func() error {
			w, err := c.OpenBuffers([][]byte{bytesOf(alloc(n)), nil})
			if err != nil {
				return err
			}
			list, err := w.Of(p - 1)
			if err == nil && (len(list) != 2 || len(list[0]) != 4*n) {
				err = fmt.Errorf("%d buffers", len(list))
			}
			return errors.Join(err, w.Close(9))
		}},
		{"messages", func() error {
			m := c.NewMessages(KindMessage)
			for j := range p {
				if c.HostOf(j) != c.Host() {
					m.Recv(j, bytesOf(alloc(n)))
					m.Send(j, bytesOf(alloc(n)))
				}
			}
			return m.Wait()
		}},
	}
	var counts []counted
	for _, call := range all {
		before, sent := c.Stats(), c.Sent()
		n := counted{name: call.name, failed: call.do() != nil, sent: c.Sent() - sent}
		for kind, s := range c.Stats() {
			n.calls[kind], n.bytes[kind] = s.Calls-before[kind].Calls, s.Bytes-before[kind].Bytes
		}
		counts = append(counts, n)
	}
	return counts
}

// A rank without others counts what a real rank counts, and accesses no byte of its buffers.
func TestDryCounts(t *testing.T) {
	for _, hosts := range [][]int{{1}, {3}, {4}, {1, 1}, {2, 2}, {3, 1, 2}, {2, 3, 3}} {
		for _, n := range []int{0, 1, 13, 700, 3000, 70_000} {
			t.Run(fmt.Sprintf("%v/%d", hosts, n), func(t *testing.T) {
				ranks := 0
				for _, h := range hosts {
					ranks += h
				}
				real, places := make([][]counted, ranks), make([][][]int, ranks)
				if err := errors.Join(NewHosts(hosts...).Run(func(c *Comm) error {
					places[c.Rank()] = c.Hosts()
					real[c.Rank()] = eachCollective(c, n, func(n int) []float32 { return make([]float32, n) })
					return nil
				})...); err != nil {
					t.Fatal(err)
				}
				for r := range ranks {
					memory, used := untouchable(t), 0
					dry := eachCollective(NewDry(places[r], r), n, func(n int) []float32 {
						used += n
						return elements[float32](memory, used-n, n)
					})
					for i, want := range real[r] {
						if want.failed {
							want.sent = 0 // text of the error
						}
						if dry[i] != want {
							t.Errorf("rank %d: %+v, want %+v", r, dry[i], want)
						}
					}
				}
			})
		}
	}
}
