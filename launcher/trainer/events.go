package trainer

// The events that a run reports to console, live view and pages.

import (
	"cmp"
	"fmt"
	"time"

	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/launcher/tasks"
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

// Watcher is a Reporter that also receives steps between the log lines.
type Watcher interface {
	Reporter
	Wants() bool // whether it wants the current step; called after every step
	Between(Step)
}

// Start describes a run before its first step.
type Start struct {
	Config Config
	Ranks  int
	Mesh   mesh.Layout // how they divide the model
	Counts moe.Counts
	Memory Memory
	FLOPs  float64 // per token
	// measured FLOP/s of all cores of the machine, in the run's precision
	Peak      float64
	CPU, Tier string
	Cores     int
	Corpus    Corpus
	Tokenizer string   // describes it
	From      int      // number of steps already made
	Resumed   string   // checkpoint that the run continues from, if any
	Notes     []string // what the user should know before the first step
}

// Corpus describes the text of a run.
type Corpus struct {
	Train, HeldOut int64 // bytes
	Documents      int
	Losses         datasets.Losses
	Builtin        string // describes the built-in text, if that is the text
}

// Step is one optimizer step. Its rates are means since the previous line.
type Step = record.Step

// Eval is a validation loss, with the results of the tasks that are to be run with it.
type Eval struct {
	Step        int
	Loss        float64 // nats/token
	Averaged    float64 // the same of the averaged weights; 0: there are none
	BitsPerByte float64
	Sequences   int
	Tasks       []tasks.Result
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
	Step  int           // after which it stops
	Done  bool          // no step is left
	About time.Duration // until then, with the save; 0: not known
	Again string        // what stops the run at once; empty: nothing that a person can type
}

// String says when the run will stop.
func (s Stopping) String() string {
	text := fmt.Sprintf("stopping after step %d", s.Step)
	if s.Done {
		text = fmt.Sprintf("step %d was the last, the run is about to end", s.Step)
	}
	if s.About > 0 {
		text += fmt.Sprintf(" (about %v)", max(s.About.Round(time.Second), time.Second))
	}
	if s.Again != "" {
		text += fmt.Sprintf("; %s again to stop now without saving", s.Again)
	}
	return text
}

// Progress is a loss at the start and at the end of a run, in nats/token.
type Progress struct {
	First, Last   float64
	BytesPerToken float64 // of the text; 0 counts as 1
}

// BitsPerByte returns the same losses in bits per byte.
func (p Progress) BitsPerByte() (first, last float64) {
	per := cmp.Or(p.BytesPerToken, 1)
	return bitsPerByte(p.First, per), bitsPerByte(p.Last, per)
}

// Done ends a run.
type Done struct {
	Step, Steps    int
	Ranks          int
	Train, HeldOut Progress
	Averaged       float64   // validation loss of the averaged weights; 0: there are none
	PassLosses     []float64 // of each pass of the last evaluation, nats per token
	Mean           int       // number of the last steps whose mean loss is Train.Last
	Prompt, Sample string
	Elapsed        time.Duration // of this process
	Out            string
	Interrupted    bool
}
