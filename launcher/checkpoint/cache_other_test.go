//go:build !linux

package checkpoint

import (
	"testing"
	"time"
)

func dropCache(b *testing.B, _ string) { b.Skip("no way to empty the page cache here") }

func processorTime() time.Duration { return 0 }
