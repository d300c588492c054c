package bench

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"
)

// How long the garbage collector waits during a product on two threads, whose assembly cannot be
// preempted.

const collectorName = "gc_wait"

// askedWait is the maximum wait of the collector, in ms.
const askedWait = 1

// collector measures collections while a product of 1024 x 1024 x 1024 runs repeatedly on two
// threads. It measures how long each collection took to stop the world, which depends on the length
// of assembly calls. It also measures how long each took in total, which includes waiting for the
// processors that the product occupies.
func (s *suite) collector(e effort) []Result {
	run := gemm(inBF16, 1024, 1024, 1024).prepare(s.onPair())
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			run()
		}
	}()
	before := stops()
	var whole []float64
	for range 4 * e.rounds {
		begin := time.Now()
		runtime.GC()
		whole = append(whole, 1e3*time.Since(begin).Seconds())
	}
	stopping := stops().since(before)
	stop.Store(true)
	<-done
	row := func(shape string, ms float64, bound string) Result {
		return Result{Name: collectorName, Shape: shape, Value: ms, Unit: "ms", Limit: askedWait, Share: ms / askedWait, Bound: bound}
	}
	return []Result{
		row("stop, median", 1e3*stopping.quantile(0.5), "asked of the time to stop all threads"),
		row("stop, max", 1e3*stopping.quantile(1), "asked of the time to stop all threads"),
		row("collection, median", Median(whole), "asked; queues for a processor"),
		row("collection, max", slices.Max(whole), "asked; queues for a processor"),
	}
}

// pauses is a histogram of the times that the collector needed to stop the world.
type pauses struct {
	counts []uint64
	bounds []float64 // seconds; counts[i] is for bounds[i] to bounds[i+1]
}

// stops returns the pauses since the program began.
func stops() pauses {
	sample := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	return pauses{slices.Clone(h.Counts), slices.Clone(h.Buckets)}
}

func (p pauses) since(before pauses) pauses {
	later := pauses{slices.Clone(p.counts), p.bounds}
	for i, n := range before.counts {
		later.counts[i] -= n
	}
	return later
}

// quantile returns the time in seconds that this share of the pauses did not exceed, to the width
// of the histogram; 0 if there was none.
func (p pauses) quantile(share float64) float64 {
	total := uint64(0)
	for _, n := range p.counts {
		total += n
	}
	seen := uint64(0)
	for i, n := range p.counts {
		if seen += n; n > 0 && float64(seen) >= share*float64(total) {
			return p.bounds[i+1]
		}
	}
	return 0
}
