package spmd

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Processes is a job whose ranks are processes of this program.
type Processes struct {
	Ranks    int
	Args     []string // of every rank's command line
	Heap     int64    // bytes of shared memory for each rank
	Vault    int64    // bytes that outlive a rank's process; 0: failures are not healed
	Tag      bool     // begin every line of output with its rank
	Bind     bool     // bind ranks to processors
	Stacks   bool     // when a rank fails, those that are left print the stacks of their goroutines, and the job ends
	Expected []int    // exit codes of ranks that end early without having failed
	Out, Err io.Writer

	Spares   int           // processes that wait, ready, to take the place of a rank that fails
	Restarts int           // failures without a step made in between that are healed; the next one ends the job
	Silence  time.Duration // without progress, or stopped, after which a rank is taken to hang; 0: DefaultSilence
	Events   func(Event)   // hears of failures, in order; may be nil

	// Fault, unless it is nil, is the [fault.Setting] of a process that is about to start, as a
	// spare if rank is -1; empty: none. Tests make ranks fail with it.
	Fault func(rank int, generation uint32) string
}

// heals says whether failed ranks are replaced.
func (p *Processes) heals() bool { return p.Vault > 0 && p.Restarts > 0 && !p.Stacks }

// DefaultSilence is how long a rank may be stopped, when nothing else is said.
const DefaultSilence = 250 * time.Millisecond

// Event is what happens to a rank's process.
type Event struct {
	Time       time.Time     `json:"time"`
	Kind       Kind          `json:"event"`
	Rank       int           `json:"rank"` // -1: a spare, or all
	Process    int           `json:"process,omitempty"`
	Step       int64         `json:"step"` // the newest that all ranks have completed
	Generation uint32        `json:"generation"`
	Reason     string        `json:"reason,omitempty"`
	After      time.Duration `json:"after_ns,omitempty"` // since the failure was detected
}

// Kind says what an event is.
type Kind string

// The kinds of events, in the order in which a failure goes by.
const (
	Started    Kind = "started"     // a process of a rank, or a spare, when the job begins
	Detected   Kind = "detected"    // a rank has failed
	Fenced     Kind = "fenced"      // its process, which hung, is killed and gone
	Replaced   Kind = "replaced"    // another process takes its place
	Resumed    Kind = "resumed"     // all ranks go on
	Redone     Kind = "redone"      // the step that was under way is complete
	SpareReady Kind = "spare_ready" // a new spare was started
	SpareLost  Kind = "spare_lost"  // a spare has died
	GaveUp     Kind = "gave_up"     // the failures go on, without a step in between
	Alarm      Kind = "alarm"       // something that the run survives, in the words of the rank that leads
)

// DoNotRestart is the exit code of a job that has failed again and again at the same step, or had
// too many steps without use: to start it again is of none.
const DoNotRestart = 93

// ExitError says which rank's process failed first, and how.
type ExitError struct {
	Rank      int
	Code      int      // its exit code; 128 and the signal's number if it was killed; DoNotRestart
	Reason    string   // empty if it ended with an expected code
	LastLines []string // of its standard error
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("rank %d failed: %s", e.Rank, e.Reason)
	if len(e.LastLines) > 0 {
		text += "\n  its last lines:\n    " + strings.Join(e.LastLines, "\n    ")
	}
	return text
}
