//go:build !unix

package observe

import (
	"time"
)

// processorTime returns 0 on this system: then no rank is named as slow.
func processorTime() time.Duration { return 0 }
