package page

// The live page of a run: the page and its data.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pollTime is the time between two requests of the script in a visible page.
const pollTime = 5 * time.Second

// pages renders a run's page, one at a time, to leave the processor to the ranks. Writing the page
// to a client takes as long as the client likes, so that is done without the lock.
type pages struct {
	run string
	mu  sync.Mutex

	finished atomic.Bool   // the run has ended: the page is its report
	followed atomic.Int64  // time of the newest request of the script, in ms since 1970
	final    chan struct{} // receives when the script has the report
}

// page returns the page of the run in its current state.
func (p *pages) page() (Page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, err := ReadRun(p.run)
	if errors.Is(err, fs.ErrNotExist) { // before the first step
		run, err = Run{Folder: p.run}, nil
	}
	return run.Page(!p.finished.Load()), err
}

// serve answers with a form of the page.
func (p *pages) serve(contentType string, form func(Page) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page, err := p.page()
		var text []byte
		if err == nil {
			text, err = form(page)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256(text))
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", contentType)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(text)
	}
}

// follow notes the requests of the script.
func (p *pages) follow(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.followed.Store(time.Now().UnixMilli())
		last := p.finished.Load()
		serve(w, r)
		if !last {
			return
		}
		http.NewResponseController(w).Flush()
		select {
		case p.final <- struct{}{}:
		default:
		}
	}
}
