package collective

// The errors that a collective returns on every rank.

import "fmt"

// AbortError says that a rank of the world failed, and which collective could not complete here.
type AbortError struct {
	Rank    int    // the world rank that failed
	Err     error  // the reason
	Comm    string // the communicator that this rank waited on
	Waiting string // the collective, with its number in the communicator
	Step    int64  // the step that this rank has reached, 0 if unknown
}

// Error implements error.
func (e *AbortError) Error() string {
	step := ""
	if e.Step > 0 {
		step = fmt.Sprintf(" at step %d", e.Step)
	}
	return fmt.Sprintf("collective: rank %d failed while %s on %s was waiting%s: %v", e.Rank, e.Waiting, e.Comm, step, e.Err)
}

// Unwrap returns the failed rank's own error.
func (e *AbortError) Unwrap() error { return e.Err }

// RankError is the error of the rank of a world that failed first.
type RankError struct {
	Rank int
	Err  error
}

// Error implements error.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the rank's own error.
func (e *RankError) Unwrap() error { return e.Err }

// MismatchError says that two ranks met in calls that do not match.
type MismatchError struct {
	Comm  string    // the communicator
	Ranks [2]int    // two ranks of the communicator whose calls do not match
	Calls [2]string // their calls
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("collective: ranks of %s disagree: rank %d called %s, rank %d called %s: every rank must make the same calls in the same order with matching counts",
		e.Comm, e.Ranks[0], e.Calls[0], e.Ranks[1], e.Calls[1])
}

// ArgumentError says that one rank passed invalid arguments to a collective. Every rank returns it.
type ArgumentError struct {
	Comm string // the communicator
	Rank int    // the rank of the communicator with the invalid arguments
	Call string // the collective
	Err  error  // the error in the arguments
}

// Error implements error.
func (e *ArgumentError) Error() string {
	return fmt.Sprintf("collective: %s on %s, rank %d: %v", e.Call, e.Comm, e.Rank, e.Err)
}

// Unwrap returns the error in the arguments.
func (e *ArgumentError) Unwrap() error { return e.Err }
