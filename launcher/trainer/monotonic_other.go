//go:build !linux

package trainer

import "time"

// monotonic is a clock that all ranks share, which are goroutines here, in ns.
func monotonic() int64 { return time.Now().UnixNano() }
