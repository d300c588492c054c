package running

// Signals that stop a command. The first ends its context: train saves and ends. A second one, or
// some time, ends the process. If the command has something to save, only a second Ctrl-C does: a
// terminal that closes, a scheduler or timeout(1) may send several signals.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
)

// pressTime is the least time between two Ctrl-C of a person. timeout(1) sends SIGINT twice at
// once.
const pressTime = 200 * time.Millisecond

// stopTime is how long a command with nothing to save may go on after the first signal.
const stopTime = 5 * time.Second

// lastWordsTime is how long the last words may take: they look for a checkpoint, on a disk that may
// not answer.
const lastWordsTime = 2 * time.Second

// lastWords is what a command prints when a second Ctrl-C ends it.
type lastWords struct {
	mu      sync.Mutex
	print   func()
	saves   bool // only Ctrl-C ends this process at once
	forever bool // no second signal ends this process: another process does
}

// lastWordsKey is the key of the [*lastWords] in a context.
type lastWordsKey struct{}

// CatchSignals returns a context that the first signal to stop ends, with [spmd.Interruption] as
// its cause. SIGHUP does not count if it is ignored, as under nohup.
func CatchSignals(parent context.Context) context.Context {
	stops := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stops = append(stops, syscall.SIGHUP)
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, stops...)
	words := &lastWords{}
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, lastWordsKey{}, words))
	go func() {
		s := (<-received).(syscall.Signal)
		cancel(spmd.Interruption{Signal: s})
		first := time.Now()
		time.AfterFunc(stopTime, func() { words.end(s, false) })
		for s := range received {
			if time.Since(first) >= pressTime {
				words.end(s.(syscall.Signal), s == syscall.SIGINT)
			}
		}
	}()
	return ctx
}

// end ends the process, unless another one does. If the command has something to save, it does so
// only at once.
func (w *lastWords) end(s syscall.Signal, atOnce bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.forever && (atOnce || !w.saves) {
		exitAfter(w.print, s)
	}
}

// exitAfter prints the last words, if there are any, and ends the process as a signal would. The
// kernel then kills the ranks that it has started.
func exitAfter(print func(), s syscall.Signal) {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		if print != nil {
			print()
		}
	}()
	select {
	case <-printed:
	case <-time.After(lastWordsTime):
	}
	os.Exit(128 + int(s))
}

// changeLastWords changes the last words of this process. It does nothing in a test that runs a
// command without signals.
func changeLastWords(ctx context.Context, change func(*lastWords)) {
	if w, ok := ctx.Value(lastWordsKey{}).(*lastWords); ok {
		w.mu.Lock()
		change(w)
		w.mu.Unlock()
	}
}

// SetLastWords sets what is printed when a second Ctrl-C ends this process, which has something to
// save.
func SetLastWords(ctx context.Context, print func()) {
	changeLastWords(ctx, func(w *lastWords) { w.print, w.saves = print, true })
}

// OutliveSignals says that another process ends this one: a second signal does not.
func OutliveSignals(ctx context.Context) {
	changeLastWords(ctx, func(w *lastWords) { w.forever = true })
}

// exitNow ends this process after print if a signal has ended ctx. It is for commands with nothing
// to save yet.
func exitNow(ctx context.Context, print func()) {
	changeLastWords(ctx, func(*lastWords) { exitAfter(print, spmd.SignalOf(ctx)) })
}

// WithSignal gives the error of an interrupted command the exit code of the signal: 128 plus its
// number.
func WithSignal(ctx context.Context, err error) error {
	if err == nil || cli.CodeOf(err) != cli.ExitInterrupted {
		return err
	}
	if i := (spmd.Interruption{}); errors.As(context.Cause(ctx), &i) {
		return cli.Fail(cli.Reported(err), 128+int(i.Signal))
	}
	return err
}

// OutliveOutput makes this process, and those that it starts, go on when a reader of their output
// has gone. Writes then return an error.
func OutliveOutput() { signal.Ignore(syscall.SIGPIPE) }

// resumeHint says from where a stopped run continues. folder is empty if it is not known yet.
func resumeHint(folder string, ranks int) string {
	if folder == "" {
		return "the run has not begun"
	}
	path, err := checkpoint.Latest(folder)
	if err != nil {
		return "there is no checkpoint yet; the same command starts again"
	}
	return fmt.Sprintf("the newest checkpoint is %s; to continue from it: launcher -np %d train --resume --out %s", path, ranks, report.Shell(folder))
}

// HandleStop ends train at once if it is asked to stop, until prepared is called: from then on the
// ranks stop it. It also sets the last words of train.
func HandleStop(ctx context.Context, env cli.Env, folder string, ranks int) (prepared func() bool) {
	if env.Member != nil { // the ranks stop together
		SetLastWords(ctx, nil)
		return func() bool { return true }
	}
	SetLastWords(ctx, func() {
		fmt.Fprintf(env.ErrOut, "launcher: stopped at once, nothing was saved: %s\n", resumeHint(folder, ranks))
	})
	return context.AfterFunc(ctx, func() {
		exitNow(ctx, func() { PrintNotBegun(env.ErrOut, folder, ranks) })
	})
}

// PrintNotBegun says that a run was stopped before its first step.
func PrintNotBegun(errOut io.Writer, folder string, ranks int) {
	fmt.Fprintf(errOut, "launcher: stopped before the first step, there was nothing to save: %s\n", resumeHint(folder, ranks))
}
