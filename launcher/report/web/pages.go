package web

// The page of the run, as a whole and without its frame.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"spmoe/launcher/report/overview"
)

// pollTime is the time between two requests of live.js in a visible page.
const pollTime = 5 * time.Second

// pages renders a run's page, one at a time, to leave the processor to the ranks. Writing the page
// to a client takes as long as the client likes, so that is done without the lock.
type pages struct {
	run string
	mu  sync.Mutex

	finished atomic.Bool   // the run has ended: the page is its report
	followed atomic.Int64  // time of the newest request of live.js, in ms since 1970
	final    chan struct{} // receives when live.js has the report
}

// runHeader is the header that tells live.js that a page is final.
const runHeader, runEnded = "Spmoe-Run", "ended"

// render returns a page of the run in its current state.
func (p *pages) render(draw func(r overview.Run, live bool) ([]byte, error), live bool) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, err := overview.Read(p.run)
	if errors.Is(err, fs.ErrNotExist) { // before the first step
		run, err = overview.Run{Folder: p.run}, nil
	}
	if err != nil {
		return nil, err
	}
	return draw(run, live)
}

func (p *pages) serve(draw func(r overview.Run, live bool) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		live := !p.finished.Load()
		text, err := p.render(draw, live)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256(text))
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if !live {
			w.Header().Set(runHeader, runEnded)
		}
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(text)
	}
}

// follow notes the requests of live.js.
func (p *pages) follow(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.followed.Store(time.Now().UnixMilli())
		serve(w, r)
		if w.Header().Get(runHeader) == runEnded {
			http.NewResponseController(w).Flush()
			select {
			case p.final <- struct{}{}:
			default:
			}
		}
	}
}
