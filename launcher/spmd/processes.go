package spmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Processes is a job whose ranks are processes of this program.
type Processes struct {
	Ranks    int
	Args     []string // the command line of every rank
	Heap     int64    // bytes of shared memory per rank
	Vault    int64    // bytes that survive a rank's process; 0: failures are not healed
	Bind     bool     // bind ranks to processors
	Expected []int    // exit codes of ranks that end early without failure
	Out, Err io.Writer
	Text     *os.File // for ranks, at TextPath; may be nil

	Spares int // standby processes that replace failed ranks
	// ranks' own failures without a completed step in between that are healed; the next one ends
	// the job
	Restarts int
	// time without progress, or stopped, after which a rank counts as hung; 0: DefaultSilence
	Silence time.Duration
	Events  func(Event) // receives the events of failures, in order; may be nil

	// Fault, if not nil, returns the orders ([fault.Variable]) of a process that is about to
	// start, as a spare if rank is -1; empty: none. Tests make ranks fail with it.
	Fault func(rank int, generation uint32) string
}

// TextPath is the path of Processes.Text in a rank's process.
const TextPath = "/proc/self/fd/5"

// heals reports whether failed ranks are replaced.
func (p *Processes) heals() bool { return p.Vault > 0 && p.Restarts > 0 }

// DefaultSilence is the default time that a rank may be stopped.
const DefaultSilence = 250 * time.Millisecond

// Event is an event of a rank's process.
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

// Kind is the kind of an event.
type Kind string

// The kinds of events, in the order in which they occur at a failure.
const (
	Started    Kind = "started"     // a process of a rank, or a spare, at the start of the job
	Detected   Kind = "detected"    // a rank has failed
	Fenced     Kind = "fenced"      // its hung process was killed and has ended
	Replaced   Kind = "replaced"    // another process replaces it
	Resumed    Kind = "resumed"     // all ranks continue
	Redone     Kind = "redone"      // the interrupted step is complete
	SpareReady Kind = "spare_ready" // a new spare was started
	SpareLost  Kind = "spare_lost"  // a spare has died
	GaveUp     Kind = "gave_up"     // too many failures without a step in between
	Alarm      Kind = "alarm"       // a problem that the run survives, described by the leading rank
)

// DoNotRestart is the exit code of a job that has failed repeatedly at the same step, or has
// skipped too many steps. Restarting it unchanged would not help.
const DoNotRestart = 93

// ErrNotBegun says that a job was stopped, on request, before its first step.
var ErrNotBegun = errors.New("stopped before the first step")

// ExitError names the rank whose process failed first, and how.
type ExitError struct {
	Rank int
	// its exit code; 128 plus the signal's number if it was killed; DoNotRestart
	Code      int
	Reason    string   // empty if it ended with an expected code
	LastLines []string // of its standard error
}

// Error implements error.
func (e *ExitError) Error() string {
	text := fmt.Sprintf("rank %d failed: %s", e.Rank, e.Reason)
	if len(e.LastLines) > 0 {
		text += "\n  its last lines:\n    " + strings.Join(e.LastLines, "\n    ")
	}
	return text
}
