package system

import (
	"strings"
	"testing"
)

func TestCheckSpace(t *testing.T) {
	for _, c := range []struct {
		limit, need int64
		ok          bool
	}{{0, 1 << 40, true}, {1 << 30, 1 << 30, true}, {1<<30 - 1, 1 << 30, false}, {1, 1 << 62, false}} {
		if err := checkSpace(c.limit, c.need); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "ulimit -v") {
			t.Errorf("%d of %d bytes: %v", c.limit, c.need, err)
		}
	}
}
