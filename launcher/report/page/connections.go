package page

// A bound on the open connections: each takes a descriptor of the launcher, which needs some to
// replace ranks.

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// connections is a listener with at most most open connections. To make room for another one it
// closes the connection that has been without a request for the longest time, but at least for
// grace: the first request of a younger one may be on its way, so clients that reconnect all the
// time cannot push others out. If none can be closed, the next one waits.
type connections struct {
	net.Listener
	most  int
	grace time.Duration

	mu      sync.Mutex
	changed sync.Cond
	open    map[net.Conn]time.Time // since when it is without a request; zero: it has one
	closed  bool
}

func newConnections(l net.Listener, most int, grace time.Duration) *connections {
	c := &connections{Listener: l, most: max(most, 1), grace: grace, open: map[net.Conn]time.Time{}}
	c.changed.L = &c.mu
	return c
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) >= c.most && !c.closed {
		if !c.evict() {
			c.changed.Wait()
		}
	}
	if c.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.open[conn] = time.Now()
	return conn, nil
}

// evict closes the connection that has been without a request for the longest time, if there is
// one. If that time is too short, it wakes Accept when it no longer is.
func (c *connections) evict() bool {
	var oldest net.Conn
	for conn, since := range c.open {
		if !since.IsZero() && (oldest == nil || since.Before(c.open[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	if wait := c.grace - time.Since(c.open[oldest]); wait > 0 {
		time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
		return false
	}
	delete(c.open, oldest)
	oldest.Close()
	return true
}

// track is the server's [http.Server.ConnState].
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[conn]; !ok { // it was evicted
		return
	}
	switch state {
	case http.StateActive:
		c.open[conn] = time.Time{}
	case http.StateIdle:
		c.open[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
	c.changed.Broadcast()
}

// Close implements [net.Listener].
func (c *connections) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}
