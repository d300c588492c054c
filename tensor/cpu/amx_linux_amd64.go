//go:build !purego

package cpu

import "syscall"

// tilesAllowed asks the kernel to let this process use the AMX tile registers, which it must before
// the first use; the answer holds for all threads. See Documentation/arch/x86/xstate.rst of Linux.
func tilesAllowed() bool {
	const (
		archPrctl           = 158
		archReqXcompPerm    = 0x1023
		xfeatureXtileDataNo = 18
	)
	_, _, errno := syscall.RawSyscall(archPrctl, archReqXcompPerm, xfeatureXtileDataNo, 0)
	return errno == 0
}
