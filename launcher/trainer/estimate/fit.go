package estimate

// Whether a run fits into this machine's memory, and what makes it fit.

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
)

// Host is a machine's share of a job.
type Host struct {
	Ranks int
	First []int // the first rank of each host; nil: every host has Ranks ranks
	// The processes that it has there. 0: this one is a rank. The launcher has checked the memory
	// before it started the ranks, and they have taken some of it since.
	Processes int
	// Ranks that fail are replaced: another copy of the optimizer's state outlives them.
	Vaults bool
}

// FirstRanks returns the first rank of each host of a job of n ranks.
func (h Host) FirstRanks(n int) []int {
	if h.First != nil {
		return h.First
	}
	var first []int
	for rank := 0; rank < n; rank += h.Ranks {
		first = append(first, rank)
	}
	return first
}

// Fits returns an error if the job needs more memory or threads on this machine than it may have.
func Fits(cfg config.Config, n int, on Host) error {
	if on.Processes == 0 {
		return nil
	}
	return cmp.Or(FitsIn(cfg, system.ReadMemory(), n, on), system.CheckThreads(on.threads()))
}

// threads returns the number of threads of the job on this machine. A process has one per core,
// those of the runtime and those that wait in system calls; the launcher waits for each of the
// others.
func (h Host) threads() int {
	const besides = 8
	return h.Processes*(runtime.GOMAXPROCS(0)+besides) + h.Processes - 1
}

// FitsIn is fits for a machine with that much memory. The error names the largest part and the
// settings that suffice.
func FitsIn(c config.Config, memory system.Memory, n int, on Host) error {
	need := Need(c, n, on)
	if memory.Total == 0 || need <= memory.Available {
		return system.CheckAddressSpace(need)
	}
	if need == readingNeed(c, on) {
		return fmt.Errorf("flavor %s on -np %d needs about %s of memory here to read %s of text in each process, %s of %s is available: give --ranks goroutine, or tokenize it first (launcher data tokenize)",
			c.Flavor, n, system.Bytes(need), system.Bytes(TextBytes(c.Data)), system.Bytes(memory.Available), system.Bytes(memory.Total))
	}
	parts := Memory(c, n)
	parts.Process += need/int64(on.Ranks) - parts.Total()
	part, size := parts.Largest()
	return fmt.Errorf("flavor %s on -np %d needs about %s of memory here (%s per rank), %s of %s is available; the largest part is %s, %s per rank: %s (--dry-run lists all parts)",
		c.Flavor, n, system.Bytes(need), system.Bytes(need/int64(on.Ranks)), system.Bytes(memory.Available), system.Bytes(memory.Total),
		part, system.Bytes(size), saving(c, memory.Available, n, on))
}

// Need returns the bytes that a job needs on this machine.
func Need(c config.Config, n int, on Host) int64 {
	return max(trainingNeed(c, n, on), readingNeed(c, on))
}

// trainingNeed returns the bytes that a job needs while it trains: the estimate of goroutine ranks,
// the rows of the batch that is used and of the next one, and what further processes add.
func trainingNeed(c config.Config, n int, on Host) int64 {
	const rows, tokenBytes = 2, 4
	need := events.Product(int64(on.Ranks), rows*tokenBytes, int64(c.Batch/c.DataRanks(n)), int64(c.Seq+1))
	all := Memory(c, n).Times(on.Ranks)
	if on.Ranks == n {
		all = AllMemory(c, n)
	}
	need += all.Total()
	if on.Vaults {
		need += all.Optimizer
	}
	// the launcher does not hold the text
	return need + int64(on.Processes-1)*FurtherBytes + events.Product(int64(max(on.Processes-2, 0)), TextBytes(c.Data))
}

// readingNeed returns the bytes that a job needs while all processes except the launcher read the
// text at the same time.
func readingNeed(c config.Config, on Host) int64 {
	return programBytes + int64(on.Processes)*FurtherBytes + events.Product(int64(max(on.Processes-1, 1)), ReadTimes, TextBytes(c.Data))
}

// Goroutines is a host whose ranks share its process.
func Goroutines(ranks int) Host { return Host{Ranks: ranks, Processes: 1} }

// saving returns what to do so that a run needs at most the available memory: flags that suffice
// alone, several together, or another model.
func saving(c config.Config, available int64, n int, on Host) string {
	fitting := func(c config.Config) bool { return Need(c, n, on) <= available }
	var alone, together []string
	if on.Processes > 1 && Need(c, n, Goroutines(on.Ranks)) <= available {
		alone = append(alone, "--ranks goroutine")
	}
	all := c
	try := func(flag string, change func(*config.Config)) {
		one := c
		change(&one)
		change(&all)
		together = append(together, flag)
		if fitting(one) {
			alone = append(alone, flag)
		}
	}
	if c.Copies() {
		try("--set save_async=false", func(c *config.Config) { c.SaveAsync = false })
	}
	if full := moe.RecomputeFull.String(); c.Recompute != full {
		try("--recompute "+full, func(c *config.Config) { c.Recompute = full })
	}
	switch micro := c.RankBatch(n); {
	case c.PPMicrobatches > 0 && micro%2 == 0:
		more := 2 * c.PPMicrobatches
		try(fmt.Sprintf("--set pp_microbatches=%d", more), func(c *config.Config) { c.PPMicrobatches = more })
	case c.PPMicrobatches == 0 && micro > 1:
		one := c
		for one.MicroBatch = micro / 2; one.MicroBatch > 1 && !fitting(one); {
			one.MicroBatch /= 2
		}
		try(fmt.Sprintf("--micro-batch %d", one.MicroBatch), func(c *config.Config) { c.MicroBatch = one.MicroBatch })
	}
	switch {
	case len(alone) > 0:
		return "give " + strings.Join(alone, ", or ")
	case fitting(all):
		return "give " + strings.Join(together, " ")
	}
	return "use a shorter --seq, fewer ranks, a smaller --flavor, or more hosts (docs/cluster.md)"
}
