// Package exchange measures the collectives and the token exchange between ranks, against the
// machine's rate of copying and against the ordinary exchange, in one run and in turns.
package exchange

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"spmoe/bench"
	"spmoe/collective"
	"spmoe/tensor"
)

// Result is one measured operation, in the terms of nccl-tests.
type Result struct {
	Name string `json:"name"`
	// median time of an operation in microseconds, on the slowest rank; or a ratio, or bytes
	Value     float64    `json:"value"`
	Unit      string     `json:"unit"` // us, x or B
	Bytes     int        `json:"bytes,omitempty"`
	AlgBW     float64    `json:"algbw_gbs,omitempty"` // bytes over time
	BusBW     float64    `json:"busbw_gbs,omitempty"` // AlgBW times the bytes that each rank must move per byte of the operation
	Share     float64    `json:"share,omitempty"`     // of the rate at which the ranks together copy memory
	Wrong     int        `json:"wrong"`               // number of wrong results
	Quartiles [2]float64 `json:"quartiles_us"`
}

// Options says what to measure.
type Options struct {
	Quick bool
	// matches the names of groups: memory_copy, all_reduce_64MiB, exchange_4096x2048_top8;
	// nil: all
	Match *regexp.Regexp
}

// Run measures on this rank. Every rank of c calls it. Only rank 0 yields results.
func Run(c *collective.Comm, o Options, yield func(Result)) error {
	s := newSuite(c, yield)
	if o.Quick {
		s.rounds = 7
	}
	sizes := []int{4 << 10, 1 << 20, 64 << 20}
	if o.Quick {
		sizes = []int{4 << 10, 16 << 20}
	}
	type group struct {
		name string
		run  func() error
	}
	groups := []group{{"memory_copy", s.copying}}
	for _, bytes := range sizes {
		groups = append(groups, group{"all_reduce_" + size(bytes), func() error { return s.allReduce(bytes) }})
	}
	for _, sh := range []shape{{4096, 2048, 8, 64}, {4096, 2048, 2, 64}, {128, 7168, 8, 64}} {
		groups = append(groups, group{"exchange_" + sh.String(), func() error { return s.roundTrip(sh) }})
	}
	for _, g := range groups {
		if o.Match != nil && !o.Match.MatchString(g.name) && g.name != "memory_copy" { // the others are compared with it
			continue
		}
		mark := s.ex.Mark()
		if err := g.run(); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		s.ex.Release(mark)
	}
	return nil
}

type suite struct {
	comm   *collective.Comm
	ex     *tensor.Exec
	rounds int
	copied float64 // GB/s of copies by all ranks together, with bytes read and written counted once
	yield  func(Result)
}

func newSuite(c *collective.Comm, yield func(Result)) *suite {
	s := &suite{comm: c, rounds: 15, yield: yield, ex: tensor.NewExec()}
	if c.Shared() {
		s.ex.Allocator = c.Allocator()
	}
	return s
}

func (s *suite) lead() bool { return s.comm.Rank() == 0 }

// An operation is measured in turns with other operations.
type operation func() error

// turns runs the operations in turns, each after a barrier, and returns the times of the slowest
// rank in microseconds, sorted.
func (s *suite) turns(calls int, ops ...operation) ([][]float64, error) {
	times := make([][]float64, len(ops))
	for round := range s.rounds + 1 {
		for i, op := range ops {
			if err := s.comm.Barrier(); err != nil {
				return nil, err
			}
			begin := time.Now()
			for range calls {
				if err := op(); err != nil {
					return nil, err
				}
			}
			slowest := []float64{float64(time.Since(begin).Nanoseconds()) / 1e3 / float64(calls)}
			if err := collective.AllReduce(s.comm, slowest, collective.Max); err != nil {
				return nil, err
			}
			if round > 0 { // the first one includes page faults
				times[i] = append(times[i], slowest[0])
			}
		}
	}
	return times, nil
}

// report summarizes the times of an operation of bytes bytes. bus is the number of bytes that each
// rank moves per byte; moved is the minimum number of bytes that all ranks together read and write.
func (s *suite) report(name string, times []float64, bytes int, bus, moved float64, wrong int) {
	if !s.lead() {
		return
	}
	us := bench.Median(times)
	sorted := slices.Sorted(slices.Values(times))
	r := Result{
		Name:      name,
		Value:     us,
		Unit:      "us",
		Bytes:     bytes,
		Wrong:     wrong,
		Quartiles: [2]float64{sorted[len(sorted)/4], sorted[len(sorted)*3/4]},
	}
	if bytes > 0 {
		r.AlgBW = float64(bytes) / us / 1e3
		r.BusBW = r.AlgBW * bus
	}
	if moved > 0 && s.copied > 0 {
		r.Share = moved / 2 / us / 1e3 / s.copied
	}
	s.yield(r)
}

// copying measures the rate at which all ranks together copy memory that does not fit in caches.
func (s *suite) copying() error {
	const bytes = 64 << 20
	src, dst := s.ex.New(tensor.UINT8, bytes), s.ex.New(tensor.UINT8, bytes)
	for i := range src.U8() {
		src.U8()[i] = byte(i)
	}
	times, err := s.turns(1, func() error { copy(dst.U8(), src.U8()); return s.comm.Barrier() })
	if err != nil {
		return err
	}
	n := float64(s.comm.Size())
	s.copied = n * bytes / bench.Median(times[0]) / 1e3
	s.report("memory_copy", times[0], bytes, n, 0, 0)
	return nil
}

func (s *suite) allReduce(bytes int) error {
	buf := s.ex.New(tensor.FP32, bytes/4)
	clear(buf.F32())
	reduce := func() error { return collective.AllReduce(s.comm, buf.F32(), collective.Sum) }
	times, err := s.turns(callsFor(bytes), reduce)
	if err != nil {
		return err
	}
	for i := range buf.F32() {
		buf.F32()[i] = float32(i%1000 + s.comm.Rank())
	}
	if err := reduce(); err != nil {
		return err
	}
	n, wrong := s.comm.Size(), 0
	for i, x := range buf.F32() {
		if x != float32(i%1000*n+n*(n-1)/2) {
			wrong++
		}
	}
	f := float64(n)
	s.report(fmt.Sprintf("all_reduce_%s", size(bytes)), times[0], bytes, 2*(f-1)/f, 2*f*float64(bytes), wrong)
	return nil
}

func callsFor(bytes int) int { return max(1, min(100, (8<<20)/bytes)) }

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%dMiB", bytes>>20)
	}
	return fmt.Sprintf("%dKiB", bytes>>10)
}
