package trainer

// What a run reports: the interface of console lines, live views and pages, and what they are
// given.

import (
	"cmp"
	"time"

	"spmoe/moe"
)

// Reporter receives what happens in a run, from one goroutine, in order.
type Reporter interface {
	Start(Start)
	Step(Step)
	Eval(Eval)
	Saved(Saved)
	Alarm(Alarm)
	Profile(Profile) // where it was asked for
	Done(Done)
}

// Watcher is a Reporter that also looks at steps between the log lines.
type Watcher interface {
	Reporter
	Wants() bool // whether it would look at one now; it is asked after every step
	Between(Step)
}

// Start describes a run before its first step.
type Start struct {
	Config    Config
	Ranks     int
	Counts    moe.Counts
	Memory    Memory
	FLOPs     float64 // a token
	Peak      float64 // measured FLOP/s of the machine, all cores together, in the run's precision
	CPU, Tier string
	Cores     int
	Corpus    Corpus
	From      int    // steps already made
	Resumed   string // checkpoint that the run continues from, if any
}

// Corpus describes the text of a run.
type Corpus struct {
	Train, HeldOut int64 // bytes
	Documents      int
}

// Step is one optimizer step; rates are means since the line before.
type Step struct {
	Step, Steps  int
	Loss         float64 // mean cross-entropy of the global batch, nats a token
	MTPLoss      float64 // of the MTP module; 0 without it
	Balance      float64 // balance loss; 0 without it
	GradNorm     float64
	LR           float64
	TokensPerSec float64
	FLOPS        float64 // model FLOP/s
	MFU          float64 // share of the measured peak
	Memory       int64   // resident bytes of the process
	MemoryShare  float64 // of the machine's memory
	Imbalance    float64 // most loaded expert over the mean, averaged over layers
	Epoch        float64
	Tokens       int64 // seen since the start
	Elapsed, ETA time.Duration
	Skipped      bool // its gradients were not fit for use, and no weight was changed
	SkippedTotal int
	Dropped      int // choices that had no room within ep_capacity, of all layers and ranks, in this step

	// Loads is how many tokens chose each expert, one Mixture-of-Experts layer after the other,
	// Layers of them. It is valid during the call only.
	Loads  []int64
	Layers int
}

// Eval is a loss on held-out text.
type Eval struct {
	Step        int
	Loss        float64 // nats a token
	BitsPerByte float64
	Sequences   int
}

// Saved is a complete checkpoint.
type Saved struct {
	Step  int
	Path  string
	Stall time.Duration // for which it held up training
	Lag   time.Duration // from the end of its step until it was durable
}

// Alarm is something that went wrong, that people should know of and that the run survives.
type Alarm struct {
	Step int
	Text string
}

// Progress is a loss at the start and at the end of a run, in nats a token.
type Progress struct {
	First, Last   float64
	BytesPerToken float64 // of the text; 0: one
}

// BitsPerByte returns the same in bits a byte.
func (p Progress) BitsPerByte() (first, last float64) {
	per := cmp.Or(p.BytesPerToken, 1)
	return bitsPerByte(p.First, per), bitsPerByte(p.Last, per)
}

// Done ends a run.
type Done struct {
	Step, Steps    int
	Ranks          int
	Train, HeldOut Progress // Train.Last is the mean of the last steps
	Prompt, Sample string
	Elapsed        time.Duration // of this process
	Out            string
	Interrupted    bool
}
