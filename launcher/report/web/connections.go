package web

// A bound on the open connections: each takes a descriptor of the launcher, which needs some to
// replace ranks.

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// connections is a listener with at most most open connections. To make room for another one it
// closes the connection that has been without a request for the longest time. If all are busy, the
// next one waits.
type connections struct {
	net.Listener
	most int

	mu      sync.Mutex
	changed sync.Cond
	open    map[net.Conn]time.Time // since when it is without a request; zero: it has one
	closed  bool
}

func newConnections(l net.Listener, most int) *connections {
	c := &connections{Listener: l, most: max(most, 1), open: map[net.Conn]time.Time{}}
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
// one.
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
