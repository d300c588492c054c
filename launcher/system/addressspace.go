package system

import "fmt"

// runtimeSpace is the address space in bytes that a process of this program reserves, and mostly
// does not use, for the Go runtime and the stacks of threads while it trains.
const runtimeSpace = 2 << 30

// startSpace is what a process needs to start at all.
const startSpace = 3 << 29

// CheckStart returns an error if the limit on address space is too low to start this program. The
// runtime would end with a stack trace.
func CheckStart() error { return checkSpace(addressSpace(), startSpace) }

// CheckAddressSpace returns an error if the limit on address space of a process leaves no room for
// need bytes and the runtime.
func CheckAddressSpace(need int64) error { return checkSpace(addressSpace(), need+runtimeSpace) }

// checkSpace returns an error if a limit, or 0 for none, is below what is needed.
func checkSpace(limit, need int64) error {
	if limit == 0 || limit >= need {
		return nil
	}
	return fmt.Errorf("a process may use %s of address space, but needs about %s: raise the limit (ulimit -v unlimited), or run where a batch system sets none", Bytes(limit), Bytes(need))
}
