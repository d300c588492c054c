package observe

import (
	"golang.org/x/sys/unix"
)

// monotonic returns the time of a clock that all processes of a machine share, in ns.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Linux has this clock
	}
	return now.Nano()
}
