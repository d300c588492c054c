package estimate

// Whether a run fits into this machine's memory and onto its disk, what makes it fit, and what is
// possible, but probably not meant.

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/datasets"
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
		return fmt.Errorf("flavor %s on -np %d needs about %s of memory here to read %s of text, %s of %s is available: tokenize it first (launcher data tokenize)",
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
	return need + int64(on.Processes-1)*FurtherBytes
}

// readingNeed returns the bytes that a job needs while one process reads the text.
func readingNeed(c config.Config, on Host) int64 {
	return programBytes + int64(on.Processes)*FurtherBytes + events.Product(ReadTimes, TextBytes(c.Data))
}

// Goroutines is a host whose ranks share its process.
func Goroutines(ranks int) Host { return Host{Ranks: ranks, Processes: 1} }

// saving returns flags that each make a run fit into the available memory, or general advice if
// none does.
func saving(c config.Config, available int64, n int, on Host) string {
	var enough []string
	try := func(flag string, change func(*config.Config)) {
		one := c
		if change(&one); Need(one, n, on) <= available {
			enough = append(enough, flag)
		}
	}
	if on.Processes > 1 && Need(c, n, Goroutines(on.Ranks)) <= available {
		enough = append(enough, "--ranks goroutine")
	}
	try("--set save_async=false", func(c *config.Config) { c.SaveAsync = false })
	full := moe.RecomputeFull.String()
	try("--recompute "+full, func(c *config.Config) { c.Recompute = full })
	if c.PPMicrobatches > 0 {
		more := 2 * c.PPMicrobatches
		try(fmt.Sprintf("--set pp_microbatches=%d", more), func(c *config.Config) { c.PPMicrobatches = more })
	}
	for micro := c.RankBatch(n) / 2; micro >= 1 && len(enough) == 0; micro /= 2 {
		try(fmt.Sprintf("--micro-batch %d", micro), func(c *config.Config) { c.MicroBatch = micro })
	}
	if len(enough) > 0 {
		return "give " + strings.Join(enough, ", or ")
	}
	return "give --recompute full with --micro-batch 1, a shorter --seq, fewer ranks, a smaller --flavor, or more hosts (docs/cluster.md)"
}

// CheckpointBytes returns the approximate size of a checkpoint of the ranks.
func CheckpointBytes(c config.Config, ranks int) int64 {
	return AllMemory(c, ranks).Optimizer
}

// CheckSpace is CheckDisk for a run that continues after a step, with a number of checkpoints that
// exist and of free bytes.
func CheckSpace(c config.Config, ranks, step, existing int, free int64) error {
	kept := c.Kept()
	most := kept + 1
	if c.Keep == 0 {
		most = 1
	}
	more := max(0, min(most-existing, savesAfter(c, step))) // a save deletes older ones first
	size := CheckpointBytes(c, ranks)
	need := events.Product(size, int64(more))
	if need <= free {
		return nil
	}
	if c.Keep == 0 {
		return fmt.Errorf("%s has %s of free space, but a checkpoint needs %s: free space there, or give --out on another disk",
			c.Out, system.Bytes(free), system.Bytes(size))
	}
	return fmt.Errorf("%s has %s of free space, but the checkpoints need about %s more: each takes %s, %d are kept (keep) and one is being written: "+
		"free space there, or give --out on another disk, --save-every 0 (one checkpoint, at the end), --set keep=%d, or keep=0 (the old one is removed before the next is complete)",
		c.Out, system.Bytes(free), system.Bytes(need), system.Bytes(size), kept, config.FewestKept)
}

// savesAfter returns how many checkpoints a run writes after a step, at most.
func savesAfter(c config.Config, step int) int {
	switch left := c.Steps - step; {
	case left <= 0:
		return 0
	case c.SaveEvery == 0:
		return 1
	case c.SaveEvery.Steps() > 0:
		return left/c.SaveEvery.Steps() + 1
	}
	return math.MaxInt
}

// AdviseSpace says what to do if the disk lacks the space for one checkpoint. It is empty
// otherwise.
func AdviseSpace(c config.Config, ranks int) string {
	need := CheckpointBytes(c, ranks)
	free, ok := system.FreeSpace(c.Out)
	if !ok || free >= need {
		return ""
	}
	return fmt.Sprintf("; it needs about %s, and %s has %s of free space: free some there", system.Bytes(need), c.Out, system.Bytes(free))
}

// Notices describes what is odd about a configuration with a tokenizer.
func Notices(c config.Config, t datasets.Tokenizer) (all []string) {
	tokens := t.VocabSize()
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if vocab := c.Model.Vocab; tokens < vocab/2 {
		advice := "leave model.vocab out"
		if c.Tokenizer == (datasets.Bytes{}).Name() {
			advice = fmt.Sprintf("make one with launcher data train-tokenizer --vocab %d --out tokenizer.json, and pass it with --tokenizer", vocab)
		}
		add("tokenizer %s uses %d of the vocabulary's %d rows (%.2g %%); the others learn nothing: %s", c.Tokenizer, tokens, vocab, 100*float64(tokens)/float64(vocab), advice)
	}
	if end := datasets.EndOf(t); end.From == "" && t.Name() != (datasets.Bytes{}).Name() {
		add("tokenizer %s names no token that ends documents, so the byte NUL (%d) stands between them: name one with end_token", c.Tokenizer, end.ID)
	}
	if steps := c.PlannedSteps(); c.Optimizer.Warmup > steps {
		add("optimizer.warmup is %d, but the learning rate is planned for %d steps: it rises until the last one, without a constant part or a decay", c.Optimizer.Warmup, steps)
	}
	return all
}

// LayoutNotices describes results whose bits depend on the layout. first has the first rank of each
// host.
func LayoutNotices(c config.Config, ranks int, first []int) (all []string) {
	one := c
	one.SetLayout(mesh.Default(1))
	precision, _ := c.Recipe() // it was checked
	if n, alone := c.Passes(ranks), one.Passes(1); n != alone && (precision.DependsOnPasses() || c.EPCapacity > 0) {
		all = append(all, fmt.Sprintf("a step has %d passes in this layout, and %d on one rank with the same settings: results of %s depend on that number, so their bits are not those of one rank", n, alone, precision.Name))
	}
	if c.CutsSubtrees(ranks) {
		all = append(all, fmt.Sprintf("%d ranks read passes of %d sequences each, which cut the sum over sequences where one rank does not, so results have other bits: give a power of two of ranks that read different sequences, without chain_passes, ep_capacity, and scales of tensors", c.DataRanks(ranks), c.RankBatch(ranks)))
	}
	if c.CutsHosts(ranks, first) {
		all = append(all, "each host adds up the dense gradients of its ranks first, and their number is no power of two, so results have other bits than on one host: give a power of two of ranks per host that read different sequences, or hosts with unequal numbers of ranks")
	}
	if n := precision.TokenBlock(); c.Seq%n != 0 {
		all = append(all, fmt.Sprintf("%s has blocks of %d tokens, and a sequence has %d: another number of ranks cuts blocks in other places, so results have other bits: give a --seq that is a multiple of %d", precision.Name, n, c.Seq, n))
	}
	return all
}

// TextNotices describes text in which special tokens are spelled.
func TextNotices(d *datasets.Data, t datasets.Tokenizer) (all []string) {
	if note := datasets.SpecialNote(t, d.Special); note != "" {
		all = append(all, note)
	}
	return all
}
