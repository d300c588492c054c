package estimate

// The memory of a process of goroutine ranks besides weights, their gradients and state, and
// activations.

import (
	"runtime"
	"strings"
	"sync"

	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/moe/optim"
)

const (
	// programBytes are the pages of the executable that a run reads: RssFile in /proc/self/status.
	programBytes = 21 << 20
	// runtimeBytes are Go's runtime, and the small objects of a run of one rank: what is resident
	// after the text is loaded, without the text and the program.
	runtimeBytes = 6 << 20
	// FurtherBytes are those of a process that shares the program with others: its runtime and its
	// small objects, and what the kernel holds for its threads and pages
	FurtherBytes = 10 << 20
	// bytes of memory per byte of text while it is read: files, documents and tokens
	ReadTimes = 3
	// of a rank: the writer of its part of a checkpoint collects blocks
	writerBytes = 1 << 20
	// each of a rank's two arenas ends in a large page that is used in part
	arenaEnds = 2 << 20
	// bytes of Go's runtime per byte of heap: spans and bitmaps
	heapOverhead = 1.0 / 1024
	// for every 256 gradients there is a partial sum of the norm
	bytesPerSquared = 8.0 / 256
)

// processBytes returns each rank's share of the memory of their process. held is what a rank holds
// besides.
func processBytes(c config.Config, ranks int, pass moe.PassMemory, held events.Memory) int64 {
	threads := float64(c.RankThreads(ranks, runtime.GOMAXPROCS(0)))
	text := float64(TextBytes(c.Data))
	perRank := threads*(pass.Packing+pass.Helping) + writerBytes + arenaEnds + normBytes(c, held)
	once := (programBytes + runtimeBytes + text) / float64(ranks)
	heap := float64(held.Total()) + perRank + text/float64(ranks)
	return int64(min(once+perRank+heap*(heapOverhead+GarbagePercent/100.0), events.MostBytes))
}

// normBytes returns the partial sums of the norm of a rank's part of the gradients.
func normBytes(c config.Config, held events.Memory) float64 {
	perWeight := optim.BytesPerWeight(Rule(c).Of(moe.Linear)) // of most weights
	return float64(held.Optimizer) / float64(max(perWeight, 1)) * bytesPerSquared
}

// textSizes caches sizes of data, because a configuration is estimated many times.
var textSizes sync.Map

// TextBytes is [datasets.TextBytes].
func TextBytes(paths []string) int64 {
	key := strings.Join(paths, "\x00")
	known, ok := textSizes.Load(key)
	if !ok {
		known, _ = textSizes.LoadOrStore(key, datasets.TextBytes(paths))
	}
	return known.(int64)
}
