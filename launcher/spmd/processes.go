package spmd

import (
	"fmt"
	"io"
	"strings"
)

// Processes is a job whose ranks are processes of this program.
type Processes struct {
	Ranks    int
	Args     []string // of every rank's command line
	Heap     int64    // bytes of shared memory for each rank
	Tag      bool     // begin every line of output with its rank
	Bind     bool     // bind ranks to processors
	Stacks   bool     // when a rank fails, those that are left print the stacks of their goroutines
	Expected []int    // exit codes of ranks that end early without having failed
	Out, Err io.Writer
}

// ExitError says which rank's process failed first, and how.
type ExitError struct {
	Rank      int
	Code      int      // its exit code; 128 and the signal's number if it was killed
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
