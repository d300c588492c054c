package page

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"spmoe/launcher/record"
)

// patience is the time after which a request counts as hung.
const patience = 20 * time.Second

// get makes a request on a connection of its own.
func get(address, path string) (*http.Response, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response, err
}

func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// stuckClient is a client that reads nothing. reading says when the first answer comes.
type stuckClient struct {
	*httptest.ResponseRecorder
	reading, released chan struct{}
}

func (c stuckClient) Write([]byte) (int, error) {
	close(c.reading)
	<-c.released
	return 0, io.ErrShortWrite
}

// A client that reads nothing does not keep the page from others, and loses its connection in time.
func TestClientThatReadsNothing(t *testing.T) {
	run := t.TempDir()
	w := begin(t, run, 0)
	w.Step(record.Step{Step: 1, Loss: 3, GradNorm: 1, LR: 1, Seconds: 1})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all := handler(run, &pages{run: run, final: make(chan struct{}, 1)}, false)
	for _, path := range []string{"/", "/report.json", "/metrics"} {
		stuck := stuckClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
		go all.ServeHTTP(stuck, httptest.NewRequest("GET", path, nil))
		<-stuck.reading
		served := make(chan int)
		go func() {
			other := httptest.NewRecorder()
			all.ServeHTTP(other, httptest.NewRequest("GET", path, nil))
			served <- other.Code
		}()
		select {
		case code := <-served:
			if code != http.StatusOK {
				t.Errorf("%s: %d", path, code)
			}
			close(stuck.released)
		case <-time.After(patience):
			close(stuck.released)
			t.Errorf("%s is not served while another client does not read it", path)
			<-served
		}
	}
	s, err := Listen(ServerConfig{Address: "127.0.0.1:0", Run: run})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, limit := range map[string]time.Duration{
		"read header": s.server.ReadHeaderTimeout, "read": s.server.ReadTimeout, "write": s.server.WriteTimeout, "idle": s.server.IdleTimeout,
	} {
		if limit <= 0 {
			t.Errorf("a client has no limit of time: %s", name)
		}
	}
}

// However many clients stay connected, few connections are open and the next client is served.
func TestIdleConnections(t *testing.T) {
	s, err := Listen(ServerConfig{Address: "127.0.0.1:0", Run: t.TempDir(), Connections: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 20 {
		text := "" // a client that asks for nothing
		if i%2 == 0 {
			text = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
		}
		conn := dial(t, s.Addr(), text)
		if text != "" {
			if _, err := io.ReadFull(conn, make([]byte, 12)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if response, err := get(s.Addr(), "/"); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	l := s.listener.(*connections)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) > 4 {
		t.Errorf("%d connections are open", len(l.open))
	}
}

// A connection waits while all others have a request: until one of them ends, or the listener does.
func TestBusyConnections(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newConnections(tcp, 1, 0)
	type accepted struct {
		conn net.Conn
		err  error
	}
	next := make(chan accepted)
	accept := func() {
		conn, err := l.Accept()
		next <- accepted{conn, err}
	}
	go accept()
	dial(t, l.Addr().String(), "")
	first := <-next
	if first.err != nil {
		t.Fatal(first.err)
	}
	l.track(first.conn, http.StateActive)
	go accept()
	dial(t, l.Addr().String(), "")
	l.track(first.conn, http.StateClosed)
	second := <-next
	if second.err != nil || second.conn == first.conn {
		t.Fatal(second)
	}
	l.track(first.conn, http.StateIdle) // no longer open
	l.track(second.conn, http.StateActive)
	if l.evict() {
		t.Error("a connection with a request was closed")
	}
	go accept()
	dial(t, l.Addr().String(), "")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if last := <-next; last.err == nil {
		t.Error("a connection was accepted after the end")
	}
}

// A connection that has just been opened is not closed for another one, which waits: until one
// ends, or until the oldest has been without a request for long enough.
func TestYoungConnections(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newConnections(tcp, 2, time.Hour)
	defer l.Close()
	next := make(chan net.Conn)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			next <- conn
		}
	}()
	dial(t, l.Addr().String(), "")
	first := <-next
	dial(t, l.Addr().String(), "")
	second := <-next
	l.mu.Lock()
	if l.evict() || len(l.open) != 2 {
		t.Error("a young connection was closed")
	}
	l.mu.Unlock()
	dial(t, l.Addr().String(), "")
	l.track(second, http.StateClosed)
	third := <-next
	l.mu.Lock()
	if _, ok := l.open[first]; !ok {
		t.Error("the oldest connection was closed")
	}
	l.open[first] = time.Now().Add(time.Millisecond - l.grace) // it will be old enough
	l.mu.Unlock()
	dial(t, l.Addr().String(), "")
	<-next
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[third]; !ok || len(l.open) != 2 {
		t.Errorf("%d connections are open; the younger one: %t", len(l.open), ok)
	}
}
