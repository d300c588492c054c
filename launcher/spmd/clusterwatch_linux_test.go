package spmd

import (
	"testing"
	"time"
)

// A process counts as stopped once it was seen so for long enough. A single look after a long time
// is not enough: the whole job may have been stopped.
func TestStoppedFor(t *testing.T) {
	const silence = 250 * time.Millisecond
	type look struct {
		stopped bool
		since   time.Duration
	}
	for name, c := range map[string]struct {
		looks []look
		fails bool
	}{
		"runs":                      {[]look{{false, time.Second}, {false, time.Second}}, false},
		"stopped":                   {[]look{{true, watchTime}, {true, watchTime}, {true, watchTime}, {true, watchTime}, {true, watchTime}}, true},
		"for a moment":              {[]look{{true, watchTime}, {true, watchTime}, {false, watchTime}, {true, watchTime}, {true, watchTime}, {true, watchTime}}, false},
		"with the whole job":        {[]look{{true, watchTime}, {true, time.Hour}, {false, watchTime}}, false},
		"on a host with other work": {[]look{{true, time.Second}, {true, time.Second}}, true},
	} {
		var stopped time.Duration
		for _, l := range c.looks {
			stopped = stoppedFor(stopped, l.stopped, l.since, silence)
		}
		if fails := stopped >= silence; fails != c.fails {
			t.Errorf("%s: stopped for %v, fails: %v", name, stopped, fails)
		}
	}
}
