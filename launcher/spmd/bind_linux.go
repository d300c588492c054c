package spmd

// Binding of ranks to processors.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bindThread binds this thread, and what it starts until restore is called, to rank r's share of
// the available processors.
func bindThread(r, ranks int) (restore func(), cores []int, err error) {
	all, mine, cores, err := shareOf(r, ranks)
	if err == nil {
		err = unix.SchedSetaffinity(0, &mine)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("binding to processors %v: %w", cores, err)
	}
	return func() { unix.SchedSetaffinity(0, &all) }, cores, nil
}

// bindProcess binds the threads of a process to rank r's share of the processors.
func bindProcess(pid, r, ranks int) (cores []int, err error) {
	_, mine, cores, err := shareOf(r, ranks)
	if err != nil {
		return nil, err
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		var thread int
		if _, err := fmt.Sscan(t.Name(), &thread); err == nil {
			unix.SchedSetaffinity(thread, &mine) // it may have ended
		}
	}
	return cores, err
}

// shareOf returns rank r's share of all processors that this thread may use.
func shareOf(r, ranks int) (all, mine unix.CPUSet, cores []int, err error) {
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return all, mine, nil, fmt.Errorf("reading the processors that may be used: %w", err)
	}
	var usable []int
	for c := range 64 * len(all) {
		if all.IsSet(c) {
			usable = append(usable, c)
		}
	}
	share := max(1, len(usable)/ranks)
	for i := range share {
		c := usable[(r*share+i)%len(usable)]
		mine.Set(c)
		cores = append(cores, c)
	}
	return all, mine, cores, nil
}
