package trainer

// Whether a run fits into this machine's memory, and what makes it fit.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/system"
	"spmoe/moe"
)

// fits returns an error if the ranks on this machine need more memory than is available.
func fits(cfg Config, n, here int) error { return cfg.fitsIn(system.ReadMemory(), n, here) }

// fitsIn is fits for a machine with that much memory. The error names the largest part and the
// settings that suffice.
func (c Config) fitsIn(memory system.Memory, n, here int) error {
	need := c.need(n, here)
	if memory.Total == 0 || need <= memory.Available {
		return system.CheckAddressSpace(need)
	}
	part, size := c.EstimateMemory(n).largest()
	return fmt.Errorf("flavor %s on -np %d needs about %s of memory here (%s per rank), %s of %s is available; the largest part is %s, %s per rank: %s (--dry-run lists all parts)",
		c.Flavor, n, system.Bytes(need), system.Bytes(need/int64(here)), system.Bytes(memory.Available), system.Bytes(memory.Total),
		part, system.Bytes(size), c.saving(memory.Available, n, here))
}

// need returns the bytes that ranks need on this machine: the estimate, and the rows of the batch
// that is used and of the next one.
func (c Config) need(n, here int) int64 {
	const rows, tokenBytes = 2, 4
	text := product(int64(here), rows*tokenBytes, int64(c.Batch/c.dataRanks(n)), int64(c.Seq+1))
	if here == n {
		return c.AllMemory(n).Total() + text
	}
	return product(c.EstimateMemory(n).Total(), int64(here)) + text
}

// largest returns the name and the size of the largest part.
func (m Memory) largest() (name string, size int64) {
	type part struct {
		name string
		size int64
	}
	most := slices.MaxFunc([]part{
		{"the weights", m.Weights}, {"the gradients", m.Gradients}, {"the optimizer's state", m.Optimizer},
		{"activations", m.Activations}, {"the copy that is saved while training continues", m.Snapshot},
	}, func(a, b part) int { return cmp.Compare(a.size, b.size) })
	return most.name, most.size
}

// saving returns what to do so that a run needs at most the available memory: flags that suffice
// alone, several together, or another model.
func (c Config) saving(available int64, n, here int) string {
	fitting := func(c Config) bool { return c.need(n, here) <= available }
	var alone, together []string
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
	switch micro := c.microBatch(n); {
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
		with = fmt.Sprintf("even with %s it needs %s: ", strings.Join(together, " "), system.Bytes(all.need(n, here)))
	}
	for shorter := all; shorter.Seq >= 2*shortestSeq; {
		if shorter.Seq /= 2; fitting(shorter) {
			return with + fmt.Sprintf("give --seq %d", shorter.Seq)
		}
	}
	if here == n && all.need(1, 1) <= available {
		return with + "use fewer ranks, which hold fewer copies of what they share"
	}
	return with + "use a smaller --flavor, or more hosts (docs/cluster.md)"
}

// shortestSeq is the shortest sequence that saving advises.
const shortestSeq = 64
