package page

// Serves the progress of a run over HTTP: its page and metrics for Prometheus.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Server serves one run.
type Server struct {
	listener net.Listener
	server   http.Server
	pages    *pages
	ended    chan error
}

// ServerConfig says what to serve, and how.
type ServerConfig struct {
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
	graceTime  = 100 * time.Millisecond // of connections without a request, while others wait
	closeTime  = time.Second
	maxHeader  = 16 << 10 // bytes
)

// Listen starts to serve a run. Only loopback addresses are allowed, since everything that can
// connect may read.
func Listen(c ServerConfig) (*Server, error) {
	address := c.Address
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address: give one such as 127.0.0.1:6006", address)
	}
	if ip, err := netip.ParseAddr(host); err != nil && host != "localhost" || err == nil && !ip.IsLoopback() {
		return nil, fmt.Errorf(
			"%q is not this machine's own: give 127.0.0.1:%s, and let ssh -L or a proxy that asks for a password forward it",
			address,
			port,
		)
	}
	tcp, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: give another port; port 0 picks a free one", err)
	} else if err != nil {
		return nil, err
	}
	l := newConnections(tcp, c.Connections, graceTime)
	s := &Server{listener: l, pages: &pages{run: c.Run, final: make(chan struct{}, 1)}, ended: make(chan error, 1)}
	s.server = http.Server{
		Handler: guarded(handler(c.Run, s.pages, c.Pprof)), ConnState: l.track,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
	go func() { s.ended <- s.server.Serve(l) }()
	return s, nil
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Finish turns the page into the report of the run, which has ended. If a browser has followed the
// run until now, Finish waits until one has the report, but not for long.
func (s *Server) Finish() {
	p := s.pages
	p.finished.Store(true)
	if time.Since(time.UnixMilli(p.followed.Load())) > 2*pollTime {
		return
	}
	select {
	case <-p.final:
	case <-time.After(pollTime + time.Second):
	}
}

// Close ends all connections, those with an answer under way a little later.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
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
		h.Set("Content-Security-Policy", policy("'self'")+"; frame-ancestors 'none'")
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

func handler(run string, page *pages, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", page.serve("text/html; charset=utf-8", Page.HTML))
	data := func(p Page) ([]byte, error) { return json.Marshal(p) }
	mux.HandleFunc("/report.json", page.follow(page.serve("application/json", data)))
	mux.HandleFunc(
		"/favicon.ico",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	) // browsers request it
	mux.Handle("/metrics", newMetrics(run))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "ok\n")
	})
	if withPprof {
		mux.HandleFunc("/debug/pprof/", brief(pprof.Index))
		mux.HandleFunc("/debug/pprof/profile", brief(pprof.Profile))
		mux.HandleFunc("/debug/pprof/trace", brief(pprof.Trace))
	}
	return mux
}

// profileSeconds is the longest time of a profile. The process has one profiler for all clients.
const profileSeconds = 60

// brief refuses longer profiles.
func brief(profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text := r.FormValue("seconds")
		if s, err := strconv.ParseFloat(text, 64); text != "" && (err != nil || !(s > 0 && s <= profileSeconds)) {
			http.Error(w, fmt.Sprintf("seconds is %.20q: give a number above 0, at most %d", text, profileSeconds), http.StatusBadRequest)
			return
		}
		profile(w, r)
	}
}
