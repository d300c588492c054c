package spmd

// File descriptors that are held back, so that a rank can be replaced when the process has used up
// all others.

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// reserved is the number of descriptors that starting a process takes: its pipes, its input, and
// those of the system call.
const reserved = 12

// reserve holds descriptors back.
type reserve []*os.File

// fill takes descriptors, as many as there are.
func (r *reserve) fill() {
	for len(*r) < reserved {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		*r = append(*r, file)
	}
}

// release gives the descriptors back.
func (r *reserve) release() {
	for _, file := range *r {
		file.Close()
	}
	*r = nil
}

// explainDescriptors adds to an error of too many open files what the limit is.
func explainDescriptors(err error) error {
	var limit unix.Rlimit
	if !errors.Is(err, syscall.EMFILE) || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return err
	}
	return fmt.Errorf("%w: the limit of open files of this process is %d: raise it with ulimit -n", err, limit.Cur)
}
