// Package web serves the progress of a run over HTTP: its report page and metrics for Prometheus.
package web

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"spmoe/launcher/report/overview"
)

//go:embed live.js
var script []byte

// Server serves one run.
type Server struct {
	listener net.Listener
	server   http.Server
	ended    chan error
}

// Config says what to serve, and how.
type Config struct {
	Address     string // such as 127.0.0.1:6006
	Run         string // folder of the run, which may not exist yet
	Connections int    // maximum number of open connections
	Pprof       bool   // add net/http/pprof
}

// A client that is slower than these limits loses its connection. pprof extends the time to write.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	writeTime  = 30 * time.Second
	idleTime   = time.Minute
	maxHeader  = 16 << 10 // bytes
)

// Listen starts to serve a run. Only loopback addresses are allowed, since everything that can
// connect may read.
func Listen(c Config) (*Server, error) {
	address := c.Address
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: give one such as 127.0.0.1:6006", address)
	}
	if ip, err := netip.ParseAddr(host); err != nil && host != "localhost" || err == nil && !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not this machine's own: give 127.0.0.1:%s, and let ssh -L or a proxy that asks for a password forward it", address, port)
	}
	tcp, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: give another port; port 0 picks a free one", err)
	} else if err != nil {
		return nil, err
	}
	l := newConnections(tcp, c.Connections)
	s := &Server{listener: l, ended: make(chan error, 1)}
	s.server = http.Server{
		Handler: guarded(handler(c.Run, c.Pprof)), ConnState: l.track,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
	go func() { s.ended <- s.server.Serve(l) }()
	return s, nil
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends all connections.
func (s *Server) Close() error {
	err := s.server.Close()
	if served := <-s.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// guarded allows only reads that address this machine by one of its own names. Otherwise a web page
// whose host name resolves to this machine could read the run (DNS rebinding).
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		switch {
		case !own(r.Host):
			http.Error(w, "ask for this machine by its own address, such as 127.0.0.1", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// own reports whether a Host header names this machine.
func own(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func handler(run string, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	page := &pages{run: run}
	mux.HandleFunc("/{$}", page.serve(func(r overview.Run) ([]byte, error) { return r.Page("live.js") }))
	mux.HandleFunc("/body", page.serve(overview.Run.Body))
	mux.HandleFunc("/live.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		w.Write(script)
	})
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }) // browsers request it
	mux.Handle("/metrics", newMetrics(run))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "ok\n")
	})
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// pages renders a run's page, one at a time, to leave the processor to the ranks. Writing the page
// to a client takes as long as the client likes, so that is done without the lock.
type pages struct {
	run string
	mu  sync.Mutex
}

// render returns a page of the run in its current state.
func (p *pages) render(draw func(overview.Run) ([]byte, error)) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, err := overview.Read(p.run)
	if errors.Is(err, fs.ErrNotExist) { // before the first step
		run, err = overview.Run{Folder: p.run}, nil
	}
	if err != nil {
		return nil, err
	}
	return draw(run)
}

func (p *pages) serve(draw func(overview.Run) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := p.render(draw)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256(text))
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(text)
	}
}
