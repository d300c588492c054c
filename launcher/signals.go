package main

// Signals that stop a command. The first ends its context: train saves and ends. A second Ctrl-C
// ends the process at once. Other signals that follow the first change nothing: a terminal that
// closes, a scheduler or timeout(1) may send several.

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"spmoe/launcher/spmd"
)

// pressTime is the least time between two Ctrl-C of a person. timeout(1) sends SIGINT twice at
// once.
const pressTime = 200 * time.Millisecond

// lastWordsTime is how long the last words may take: they look for a checkpoint, on a disk that may
// not answer.
const lastWordsTime = 2 * time.Second

// lastWords is what a command prints when a second Ctrl-C ends it.
type lastWords struct {
	mu      sync.Mutex
	print   func()
	forever bool // a second Ctrl-C does not end this process: another process does
}

// lastWordsKey is the key of the [*lastWords] in a context.
type lastWordsKey struct{}

// catchSignals returns a context that the first signal to stop ends, with [spmd.Interruption] as
// its cause. SIGHUP does not count if it is ignored, as under nohup.
func catchSignals(parent context.Context) context.Context {
	stops := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		stops = append(stops, syscall.SIGHUP)
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, stops...)
	words := &lastWords{}
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, lastWordsKey{}, words))
	go func() {
		cancel(spmd.Interruption{Signal: (<-received).(syscall.Signal)})
		first := time.Now()
		for s := range received {
			if s == syscall.SIGINT && time.Since(first) >= pressTime {
				words.exit(128 + int(syscall.SIGINT))
			}
		}
	}()
	return ctx
}

// exit prints the last words and ends the process. The kernel then kills the ranks that it has
// started.
func (w *lastWords) exit(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forever {
		return
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		if w.print != nil {
			w.print()
		}
	}()
	select {
	case <-printed:
	case <-time.After(lastWordsTime):
	}
	os.Exit(code)
}

// setLastWords sets what is printed when a second Ctrl-C ends this process.
func setLastWords(ctx context.Context, print func()) {
	if w, ok := ctx.Value(lastWordsKey{}).(*lastWords); ok {
		w.mu.Lock()
		w.print = print
		w.mu.Unlock()
	}
}

// outliveSignals says that another process ends this one: a second Ctrl-C does not.
func outliveSignals(ctx context.Context) {
	if w, ok := ctx.Value(lastWordsKey{}).(*lastWords); ok {
		w.mu.Lock()
		w.forever = true
		w.mu.Unlock()
	}
}

// withSignal gives the error of an interrupted command the exit code of the signal: 128 plus its
// number.
func withSignal(ctx context.Context, err error) error {
	if err == nil || codeOf(err) != exitInterrupted {
		return err
	}
	if i := (spmd.Interruption{}); errors.As(context.Cause(ctx), &i) {
		return failure{reportedError{err}, 128 + int(i.Signal)}
	}
	return err
}

// outliveOutput makes this process, and those that it starts, go on when a reader of their output
// has gone. Writes then return an error.
func outliveOutput() { signal.Ignore(syscall.SIGPIPE) }
