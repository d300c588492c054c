// Package cli reads command lines: commands and their flags, help, and what an unknown
// word may have meant. A command gets its environment as an Env.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"spmoe/launcher/spmd"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitFailed      = 1   // the job or a check failed
	ExitUsage       = 2   // bad flags, configuration or input: nothing was started
	ExitUndecided   = 3   // compare has shown neither equivalence nor a difference
	ExitUnsaved     = 74  // train has ended without a checkpoint of its last step (EX_IOERR of sysexits.h)
	ExitInterrupted = 130 // stopped on request; after a signal, 128 plus its number
)

// Env is the environment of a command: its arguments, its output and the process that started it.
type Env struct {
	Args        []string // the arguments that are not flags
	CommandLine []string // everything after the program's name
	Out, ErrOut io.Writer
	Member      spmd.Rank     // nil unless another process has started this one as a rank
	Cluster     *spmd.Cluster // nil unless mpirun or srun has started this process
	// Fault makes rank processes fail, in tests: see [spmd.Processes]. May be nil.
	Fault func(rank int, generation uint32) string

	// RunLine executes another command line in this process and returns its exit code.
	RunLine func(ctx context.Context, args []string, out, errOut io.Writer) int
}

// Failure is an error with an exit code. All other errors are user errors and exit with ExitUsage.
type Failure struct {
	Err      error
	Code     int
	reported bool // already printed: a rank's error, or the result that a comparison's tables show
}

// Fail returns an error with an exit code.
func Fail(err error, code int) error { return Failure{err, code, isReported(err)} }

// Reported returns an error that is already printed.
func Reported(err error) error { return Failure{err, CodeOf(err), true} }

func isReported(err error) bool {
	var f Failure
	return errors.As(err, &f) && f.reported
}

// Error implements error.
func (f Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error without its code.
func (f Failure) Unwrap() error { return f.Err }

// ExitCode prints an error, unless it is already printed or an interruption, and returns its exit
// code.
func ExitCode(err error, errOut io.Writer) int {
	if err == nil {
		return ExitOK
	}
	code := CodeOf(err)
	if code != ExitInterrupted && !isReported(err) {
		fmt.Fprintf(errOut, "launcher: %v\n", err)
	}
	return code
}

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	if f := (Failure{}); errors.As(err, &f) {
		return f.Code
	}
	return ExitUsage
}

// ReportsJob reports whether this process reports on the whole job. It does if it has started the
// ranks, or if it is the leading rank of a cluster.
func (e Env) ReportsJob() bool {
	return e.Member == nil || e.Cluster != nil && e.Cluster.Leads()
}

// LeaderOnly returns env with output from the leading rank only. The writer decides at each write,
// because a spare does not know its rank yet.
func (e Env) LeaderOnly() Env {
	if e.Member != nil {
		e.Out = LeaderWriter{e.Member, e.Out}
	}
	return e
}

// LeaderWriter writes while its member is the leading rank, and discards otherwise.
type LeaderWriter struct {
	Member spmd.Rank
	To     io.Writer
}

// Write implements [io.Writer].
func (w LeaderWriter) Write(b []byte) (int, error) {
	if !w.Member.Leads() {
		return len(b), nil
	}
	return w.To.Write(b)
}
