//go:build !purego

package cpu

import "syscall"

// tilesAllowed asks the kernel for permission to use the AMX tile registers. A process must ask
// before the first use. The answer holds for all threads. See Documentation/arch/x86/xstate.rst of
// Linux.
func tilesAllowed() bool {
	const (
		archPrctl           = 158
		archReqXcompPerm    = 0x1023
		xfeatureXtileDataNo = 18
	)
	_, _, errno := syscall.RawSyscall(archPrctl, archReqXcompPerm, xfeatureXtileDataNo, 0)
	return errno == 0
}
