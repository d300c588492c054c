package trainer

import "golang.org/x/sys/unix"

// monotonic is a clock that all processes of a machine share, in ns.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // Linux has it
	}
	return now.Nano()
}
