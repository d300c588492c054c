package trainer

// Whether a run fits into this machine's memory, and what makes it fit.

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"spmoe/launcher/system"
	"spmoe/moe"
)

// Host is a machine's share of a job.
type Host struct {
	Ranks int
	// The processes that it has there. 0: this one is a rank. The launcher has checked the memory
	// before it started the ranks, and they have taken some of it since.
	Processes int
	// Ranks that fail are replaced: another copy of the optimizer's state outlives them.
	Vaults bool
}

// fits returns an error if the job needs more memory or threads on this machine than it may have.
func fits(cfg Config, n int, on Host) error {
	if on.Processes == 0 {
		return nil
	}
	return cmp.Or(cfg.fitsIn(system.ReadMemory(), n, on), system.CheckThreads(on.threads()))
}

// threads returns the number of threads of the job on this machine. A process has one per core,
// those of the runtime and those that wait in system calls; the launcher waits for each of the
// others.
func (h Host) threads() int {
	const besides = 8
	return h.Processes*(runtime.GOMAXPROCS(0)+besides) + h.Processes - 1
}

// fitsIn is fits for a machine with that much memory. The error names the largest part and the
// settings that suffice.
func (c Config) fitsIn(memory system.Memory, n int, on Host) error {
	need := c.Need(n, on)
	if memory.Total == 0 || need <= memory.Available {
		return system.CheckAddressSpace(need)
	}
	if need == c.readingNeed(on) {
		in, advice := "", "give less text, or tokenize it first (launcher data tokenize)"
		if on.Processes > 1 {
			in = fmt.Sprintf(" in %d processes", on.Processes-1)
			advice = "tokenize it first (launcher data tokenize): all processes share the file"
			if c.Need(n, goroutines(on.Ranks)) <= memory.Available {
				advice = "give --ranks goroutine, or " + advice
			}
		}
		return fmt.Errorf("flavor %s on -np %d needs about %s of memory here to read %s of text%s, %s of %s is available: %s",
			c.Flavor, n, system.Bytes(need), system.Bytes(textBytes(c.Data)), in, system.Bytes(memory.Available), system.Bytes(memory.Total), advice)
	}
	parts := c.EstimateMemory(n)
	parts.Process += need/int64(on.Ranks) - parts.Total()
	part, size := parts.largest()
	return fmt.Errorf("flavor %s on -np %d needs about %s of memory here (%s per rank), %s of %s is available; the largest part is %s, %s per rank: %s (--dry-run lists all parts)",
		c.Flavor, n, system.Bytes(need), system.Bytes(need/int64(on.Ranks)), system.Bytes(memory.Available), system.Bytes(memory.Total),
		part, system.Bytes(size), c.saving(memory.Available, n, on))
}

// Need returns the bytes that a job needs on this machine.
func (c Config) Need(n int, on Host) int64 { return max(c.trainingNeed(n, on), c.readingNeed(on)) }

// trainingNeed returns the bytes that a job needs while it trains: the estimate of goroutine ranks,
// the rows of the batch that is used and of the next one, and what further processes add.
func (c Config) trainingNeed(n int, on Host) int64 {
	const rows, tokenBytes = 2, 4
	need := product(int64(on.Ranks), rows*tokenBytes, int64(c.Batch/c.dataRanks(n)), int64(c.Seq+1))
	all := c.EstimateMemory(n).Times(on.Ranks)
	if on.Ranks == n {
		all = c.AllMemory(n)
	}
	need += all.Total()
	if on.Vaults {
		need += all.Optimizer
	}
	// the launcher does not hold the text
	return need + int64(on.Processes-1)*furtherBytes + product(int64(max(on.Processes-2, 0)), textBytes(c.Data))
}

// readingNeed returns the bytes that a job needs while all processes except the launcher read the
// text at the same time.
func (c Config) readingNeed(on Host) int64 {
	return programBytes + int64(on.Processes)*furtherBytes + product(int64(max(on.Processes-1, 1)), readTimes, textBytes(c.Data))
}

// goroutines is a host whose ranks share its process.
func goroutines(ranks int) Host { return Host{Ranks: ranks, Processes: 1} }

// largest returns the name and the size of the largest part.
func (m Memory) largest() (name string, size int64) {
	type part struct {
		name string
		size int64
	}
	most := slices.MaxFunc([]part{
		{"the weights", m.Weights}, {"the gradients", m.Gradients}, {"the optimizer's state", m.Optimizer},
		{"activations", m.Activations}, {"the copy that is saved while training continues", m.Snapshot},
		{"the program with its text and processes", m.Process},
	}, func(a, b part) int { return cmp.Compare(a.size, b.size) })
	return most.name, most.size
}

// saving returns what to do so that a run needs at most the available memory: flags that suffice
// alone, several together, or another model.
func (c Config) saving(available int64, n int, on Host) string {
	fitting := func(c Config) bool { return c.Need(n, on) <= available }
	var alone, together []string
	if on.Processes > 1 && c.Need(n, goroutines(on.Ranks)) <= available {
		alone = append(alone, "--ranks goroutine")
	}
	all := c
	try := func(flag string, change func(*Config)) {
		one := c
		change(&one)
		change(&all)
		together = append(together, flag)
		if fitting(one) {
			alone = append(alone, flag)
		}
	}
	if c.copies() {
		try("--save-async=false", func(c *Config) { c.SaveAsync = false })
	}
	if full := moe.RecomputeFull.String(); c.Recompute != full {
		try("--recompute "+full, func(c *Config) { c.Recompute = full })
	}
	switch micro := c.RankBatch(n); {
	case c.PPMicrobatches > 0 && micro%2 == 0:
		more := 2 * c.PPMicrobatches
		try(fmt.Sprintf("--pp-microbatches %d", more), func(c *Config) { c.PPMicrobatches = more })
	case c.PPMicrobatches == 0 && micro > 1:
		one := c
		for one.MicroBatch = micro / 2; one.MicroBatch > 1 && !fitting(one); {
			one.MicroBatch /= 2
		}
		try(fmt.Sprintf("--micro-batch %d", one.MicroBatch), func(c *Config) { c.MicroBatch = one.MicroBatch })
	}
	switch {
	case len(alone) > 0:
		return "give " + strings.Join(alone, ", or ")
	case fitting(all):
		return "give " + strings.Join(together, " ")
	}
	with := ""
	if len(together) > 0 {
		with = fmt.Sprintf("even with %s it needs %s: ", strings.Join(together, " "), system.Bytes(all.Need(n, on)))
	}
	for shorter := all; shorter.Seq >= 2*shortestSeq; {
		if shorter.Seq /= 2; fitting(shorter) {
			return with + fmt.Sprintf("give --seq %d", shorter.Seq)
		}
	}
	if on.Ranks == n && all.Need(1, goroutines(1)) <= available {
		return with + "use fewer ranks, which hold fewer copies of what they share"
	}
	return with + "use a smaller --flavor, or more hosts (docs/cluster.md)"
}

// shortestSeq is the shortest sequence that saving advises.
const shortestSeq = 64
