package collective

import (
	"fmt"
	"testing"
	"time"
)

// perRank runs f on every rank of a fresh world, the timer covering all of it.
func perRank(b *testing.B, np int, f func(c *Comm) error) {
	b.Helper()
	b.ReportAllocs()
	w := NewWorld(np)
	b.ResetTimer()
	if err := w.Run(f); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, np := range []int{2, 8} {
		b.Run(fmt.Sprintf("np%d", np), func(b *testing.B) {
			perRank(b, np, func(c *Comm) error {
				for range b.N {
					if err := c.Barrier(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkBarrierAfterWork has 50 us of computation on every rank before each barrier, as a
// model's step has: ns/op beyond 50 us (np 2 on 2 cores) is what the meeting costs when it is not
// the only thing that runs.
func BenchmarkBarrierAfterWork(b *testing.B) {
	for _, np := range []int{2, 8} {
		b.Run(fmt.Sprintf("np%d", np), func(b *testing.B) {
			perRank(b, np, func(c *Comm) error {
				for range b.N {
					for start := time.Now(); time.Since(start) < 50*time.Microsecond; {
					}
					if err := c.Barrier(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkAllReduce reports algbw and busbw as nccl-tests defines them: size over time, and that
// times 2(n-1)/n.
func BenchmarkAllReduce(b *testing.B) {
	for _, np := range []int{2, 8} {
		for _, size := range []int{4 << 10, 64 << 20} {
			b.Run(fmt.Sprintf("np%d/%s", np, bytesName(size)), func(b *testing.B) {
				bufs := make([][]float32, np)
				for r := range bufs {
					bufs[r] = touched[float32](size / 4)
				}
				perRank(b, np, func(c *Comm) error {
					for range b.N {
						if err := AllReduce(c, bufs[c.Rank()], Sum); err != nil {
							return err
						}
					}
					return nil
				})
				reportBandwidth(b, size, 2*float64(np-1)/float64(np))
			})
		}
	}
}

// BenchmarkReduceScatter has an own destination, as the gradients of sharded optimizer state have.
func BenchmarkReduceScatter(b *testing.B) {
	const np, size = 2, 64 << 20
	srcs, dsts, counts := make([][]float32, np), make([][]float32, np), make([]int, np)
	for r := range srcs {
		srcs[r], dsts[r], counts[r] = touched[float32](size/4), touched[float32](size/4/np), size/4/np
	}
	perRank(b, np, func(c *Comm) error {
		for range b.N {
			if err := ReduceScatter(c, dsts[c.Rank()], srcs[c.Rank()], counts, Sum); err != nil {
				return err
			}
		}
		return nil
	})
	reportBandwidth(b, size, float64(np-1)/np)
}

func BenchmarkAllToAllV(b *testing.B) {
	for _, np := range []int{2, 8} {
		for _, size := range []int{4 << 10, 16 << 20} { // what one rank sends
			b.Run(fmt.Sprintf("np%d/%s", np, bytesName(size)), func(b *testing.B) {
				srcs, dsts := make([][]float32, np), make([][]float32, np)
				counts, displs := make([]int, np), make([]int, np)
				for r := range srcs {
					srcs[r], dsts[r] = touched[float32](size/4), touched[float32](size/4)
					counts[r], displs[r] = size/4/np, r*size/4/np
				}
				perRank(b, np, func(c *Comm) error {
					for range b.N {
						if err := AllToAllV(c, dsts[c.Rank()], counts, displs, srcs[c.Rank()], counts, displs); err != nil {
							return err
						}
					}
					return nil
				})
				reportBandwidth(b, size, float64(np-1)/float64(np))
			})
		}
	}
}

// BenchmarkMemcpy is what this machine copies on np cores at once: the limit that the figures above
// are to be held against.
func BenchmarkMemcpy(b *testing.B) {
	const np, size = 2, 16 << 20
	srcs, dsts := make([][]byte, np), make([][]byte, np)
	for r := range srcs {
		srcs[r], dsts[r] = touched[byte](size), touched[byte](size)
	}
	perRank(b, np, func(c *Comm) error {
		for range b.N {
			copy(dsts[c.Rank()], srcs[c.Rank()])
		}
		return nil
	})
	reportBandwidth(b, size, 1)
}

// touched is n elements whose pages the kernel has already handed out.
func touched[T Number](n int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = 1
	}
	return s
}

// reportBandwidth adds the bandwidths of b.N operations on size bytes a rank, in GB/s of 1e9 bytes.
func reportBandwidth(b *testing.B, size int, bus float64) {
	algbw := float64(size) * float64(b.N) / 1e9 / b.Elapsed().Seconds()
	b.ReportMetric(algbw, "algbw-GB/s")
	b.ReportMetric(algbw*bus, "busbw-GB/s")
}

func bytesName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMB", n>>20)
	}
	return fmt.Sprintf("%dkB", n>>10)
}
