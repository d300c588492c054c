package running

import (
	"io"
	"sync"
)

// logWriter passes on what is written until that fails, because its reader has gone: a closed pipe,
// a terminal that was lost. It discards the rest, so that the run goes on without its log.
type logWriter struct {
	to io.Writer

	mu     sync.Mutex
	closed bool
}

// Write implements [io.Writer]. It never returns an error.
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		_, err := w.to.Write(b)
		w.closed = err != nil
	}
	return len(b), nil
}
