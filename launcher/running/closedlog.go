package running

// The log of a run whose reader has gone: a closed pipe, a terminal that was lost. The run goes on
// without it.

import (
	"fmt"
	"io"
	"sync"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// logWriter passes on what is written until that fails, and discards the rest. It never returns an
// error.
type logWriter struct {
	to   io.Writer
	lost func(error) // called at the first error; may be nil

	mu     sync.Mutex
	closed bool
}

// Write implements [io.Writer].
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(b), nil
	}
	if _, err := w.to.Write(b); err != nil {
		w.closed = true
		if w.lost != nil {
			w.lost(err)
		}
	}
	return len(b), nil
}

// RecordLoss makes the loss of the log an event of the run in a folder.
func (w *logWriter) RecordLoss(folder string, held *system.FolderLock) {
	w.lost = func(err error) {
		events := record.EventLog{Folder: folder, Held: held}
		events.Add(spmd.Event{Time: time.Now(), Kind: spmd.Alarm, Rank: -1, Step: -1,
			Reason: fmt.Sprintf("the log cannot be printed any more, the run goes on without it: %v", err)})
		events.Close() // without log and events, there is nothing left to say it to
	}
}
