// Package events has what a run reports to the console.
package events

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// Reporter receives the events of a run, one at a time.
type Reporter interface {
	Start(Start)
	Step(Step)
	Eval(Eval)
	Sample(Sample)
	Saved(Saved)
	Alarm(Alarm)
	Stopping(Stopping)
	Profile(Profile) // if requested
	Done(Done)
}

// Start describes a run before its first step.
type Start struct {
	Config config.Config
	Ranks  int
	Mesh   mesh.Layout // how they divide the model
	Counts moe.Counts
	Memory Memory
	FLOPs  float64 // per token
	// measured FLOP/s of all cores of the machine, in the run's precision
	Peak      float64
	CPU, Tier string
	Cores     int
	Corpus    datasets.Counts
	Tokenizer string   // describes it
	From      int      // number of steps already made
	Resumed   string   // checkpoint that the run continues from, if any
	Notes     []string // what the user should know before the first step
}

// Step is one optimizer step. Its rates are means since the previous line.
type Step = record.Step

// Eval is a validation loss.
type Eval struct {
	Step        int
	Loss        float64 // nats/token
	BitsPerByte float64
	Sequences   int
}

// Sample is text that the model wrote after a prompt, during the run. That at the end is part of
// Done.
type Sample = record.Sample

// Saved is a complete checkpoint.
type Saved struct {
	Step  int
	Path  string
	Stall time.Duration // time that training was paused
	Lag   time.Duration // from the end of its step until it was durable
}

// Alarm is a problem that people should know of and that the run survives.
type Alarm struct {
	Step int
	Text string
}

// Stopping says that a run was asked to stop.
type Stopping struct {
	Step  int    // after which it stops
	Done  bool   // no step is left
	Again string // what stops the run at once; empty: nothing that a person can type
}

// String says when the run will stop.
func (s Stopping) String() string {
	text := fmt.Sprintf("stopping after step %d", s.Step)
	if s.Done {
		text = fmt.Sprintf("step %d was the last, the run is about to end", s.Step)
	}
	if s.Again != "" {
		text += fmt.Sprintf("; %s again to stop now without saving", s.Again)
	}
	return text
}

// Progress is a loss at the start and at the end of a run, in nats/token.
type LossChange struct {
	First, Last   float64
	BytesPerToken float64 // of the text; 0 counts as 1
}

// BitsPerByte returns the same losses in bits per byte.
func (p LossChange) BitsPerByte() (first, last float64) {
	per := cmp.Or(p.BytesPerToken, 1)
	return BitsPerByte(p.First, per), BitsPerByte(p.Last, per)
}

// Done ends a run.
type Done struct {
	Step, Steps    int
	Ranks          int
	Train, HeldOut LossChange
	PassLosses     []float64 // of each pass of the last evaluation, nats per token
	Mean           int       // number of the last steps whose mean loss is Train.Last
	Prompt, Sample string
	Elapsed        time.Duration // of this process
	Out            string
	Interrupted    bool
}

// ErrInterrupted says that a run ended at a step boundary before its last step, on request, with
// all its state saved.
var ErrInterrupted = errors.New("interrupted")

// Profile is the time of an optimizer step by kind of work. It excludes evaluations, checkpoints
// and the first step of a run, which allocates memory.
type Profile struct {
	Steps    int // number of measured steps; 0: there was none after the first
	Ranks    int
	Slowest  int          // the rank that others waited for: it waited least itself
	Step     FamilyTime   // the whole step
	Families []FamilyTime // longest mean first; without kinds that took no time
}

// FamilyTime is the time per step of one kind of work.
type FamilyTime struct {
	Name    string
	Mean    time.Duration // over all ranks
	Slowest time.Duration // of the slowest rank
	Ranks   []time.Duration
}

// Seconds returns the profile by name, as a record holds it.
func (p Profile) Seconds() map[string]float64 {
	by := map[string]float64{}
	for _, f := range p.Families {
		by[f.Name] = f.Mean.Seconds()
	}
	return by
}

// BitsPerByte converts nats/token.
func BitsPerByte(nats, bytesPerToken float64) float64 { return nats / (math.Ln2 * bytesPerToken) }

// Largest returns the name and the size of the largest part.
func (m Memory) Largest() (name string, size int64) {
	names := [...]string{
		"the weights", "the gradients", "the optimizer's state", "activations",
		"the copy that is saved while training continues", "the program with its text and processes",
	}
	for i, part := range m.parts() {
		if *part > size {
			name, size = names[i], *part
		}
	}
	return name, size
}

// parts returns the parts in the order of the fields.
func (m *Memory) parts() [6]*int64 {
	return [...]*int64{&m.Weights, &m.Gradients, &m.Optimizer, &m.Activations, &m.Snapshot, &m.Process}
}

// Memory is an estimate of the memory of one rank, in bytes.
type Memory struct {
	// working weights with their quantized forms: this rank's experts, norms, and its share of the
	// dense weights, which exist once on a host
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"` // FP32, of the same weights
	// this rank's FP32 master weights and the vectors of its rule
	Optimizer int64 `json:"optimizer"`
	// what a pass saves for its backward pass, and the most scratch memory at once
	Activations int64 `json:"activations"`
	// copy of the optimizer's state that is saved while training continues
	Snapshot int64 `json:"snapshot"`
	// this rank's share of everything else in the process of goroutine ranks: see processBytes
	Process int64 `json:"process"`
}

// Total returns the sum.
func (m Memory) Total() (sum int64) {
	for _, part := range m.parts() {
		sum += *part
	}
	return sum
}

// Plus adds two estimates, part by part. Each sum is capped like its parts.
func (m Memory) Plus(o Memory) Memory {
	for i, part := range m.parts() {
		*part = min(*part+*o.parts()[i], MostBytes)
	}
	return m
}

// MostBytes is beyond any machine, and small enough that sums of estimates do not overflow.
const MostBytes = 1 << 56

// Product multiplies sizes, which users choose. It is capped at mostBytes, so that sums of products
// do not overflow.
func Product(factors ...int64) int64 {
	p, estimate := int64(1), 1.0
	for _, f := range factors {
		p *= f
		estimate *= float64(f)
	}
	if estimate > MostBytes {
		return MostBytes
	}
	return p
}

// Times returns the memory of n ranks.
func (m Memory) Times(n int) Memory {
	for _, part := range m.parts() {
		*part = Product(*part, int64(n))
	}
	return m
}
