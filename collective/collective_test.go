package collective

// What the tests of this package share: worlds of every small size, and data that tells ranks and
// places apart.

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"spmoe/collective/heap"
)

// sizes are the world sizes that the collectives are tested with.
var sizes = []int{1, 2, 3, 5, 8}

// forSizes runs f on every rank of worlds of all sizes and kinds.
func forSizes(t *testing.T, f func(c *Comm) error) {
	t.Helper()
	forKinds(t, kinds, f)
	forKinds(t, hostKinds, f)
}

// forKinds runs f on every rank of worlds of all sizes.
func forKinds(t *testing.T, kinds map[string]func(n int, f func(c *Comm) error) error, f func(c *Comm) error) {
	t.Helper()
	for _, n := range sizes {
		for kind, run := range kinds {
			t.Run(fmt.Sprintf("np%d/%s", n, kind), func(t *testing.T) {
				if err := run(n, f); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// kinds are the ways to run ranks of one host.
var kinds = map[string]func(n int, f func(c *Comm) error) error{
	"goroutines": func(n int, f func(c *Comm) error) error { return NewWorld(n).Run(f) },
	"mappings":   func(n int, f func(c *Comm) error) error { return runMapped([]int{n}, f) },
}

// hostKinds are the ways to run ranks of several hosts.
var hostKinds = map[string]func(n int, f func(c *Comm) error) error{
	"hosts":           func(n int, f func(c *Comm) error) error { return runHosts(evenly(n), f) },
	"uneven hosts":    func(n int, f func(c *Comm) error) error { return runHosts(unevenly(n), f) },
	"mappings, hosts": func(n int, f func(c *Comm) error) error { return runMapped(unevenly(n), f) },
}

// evenly and unevenly divide n ranks among hosts.
func evenly(n int) []int {
	each := 1
	for n%(2*each) == 0 && 2*each < n {
		each *= 2
	}
	return slices.Repeat([]int{each}, n/each)
}

func unevenly(n int) (ranks []int) {
	for each := 1; n > 0; each++ {
		ranks = append(ranks, min(each, n))
		n -= min(each, n)
	}
	return ranks
}

// runHosts runs the ranks of several hosts.
func runHosts(ranks []int, f func(c *Comm) error) error {
	return errors.Join(NewHosts(ranks...).Run(f)...)
}

// runMapped gives each rank a mapping of the heap of its own, as processes have it: at another
// address, and with nothing else shared.
func runMapped(hosts []int, f func(c *Comm) error) error {
	const region = 16 << 20
	placement, net := placed(hosts), newLoopback()
	errs := make([]error, placement.Ranks)
	heaps := make([]*heap.Heap, placement.Ranks)
	// A rank that ends a message rings in its peer's mapping, even if the peer has returned.
	defer func() {
		for _, h := range heaps {
			if h != nil {
				h.Close()
			}
		}
	}()
	var wg sync.WaitGroup
	for host := range hosts {
		part := placement.Part(host)
		file, err := heap.Create(part, ControlBytes(placement.Ranks), region, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		for r := part.First; r < part.First+part.Ranks; r++ {
			wg.Go(func() {
				h, err := heap.Open(file)
				if err != nil {
					errs[r] = err
					return
				}
				heaps[r] = h
				w, err := JoinHosts(h, r, placement, net)
				if err == nil {
					err = w.Run(f)
				}
				errs[r] = err
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// everyRank runs f on every rank and returns its errors by rank, without aborting the world.
func everyRank(n int, f func(c *Comm) error) []error {
	errs := make([]error, n)
	w := NewWorld(n)
	w.Run(func(c *Comm) error {
		errs[c.Rank()] = f(c)
		return nil
	})
	return errs
}

// wantEqual is an error that names the first difference, if there is one.
func wantEqual[T comparable](what string, got, want []T) error {
	if slices.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
	return fmt.Errorf("%s: has NaN", what)
}

// mark is element i of rank r's data in collective number round.
func mark(round, r, i int) int64 { return int64(round)<<40 | int64(r)<<32 | int64(i) }

// marks is n elements of rank r.
func marks(round, r, n int) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = mark(round, r, i)
	}
	return s
}

// lengths are element counts around the unrolling, the cache line and the block of a reduction of
// float32.
var lengths = []int{0, 1, 7, 8, 16, 17, 100, blockBytes/4 - 1, blockBytes / 4, 3*blockBytes/4 + 5}

// as is errors.As as an expression.
func as[E error](err error) (E, bool) {
	var e E
	return e, errors.As(err, &e)
}
