package spmd

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"spmoe/collective/heap"
)

// When all descriptors are in use, the reserve still lets a process start. Without it the error
// says why none can.
func TestReserve(t *testing.T) {
	file, err := heap.Create(heap.Whole(1), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l := &launch{
		Processes: &Processes{Ranks: 1, Args: []string{"-test.run=^$"}, Err: &lockedText{}, Out: &lockedText{}},
		file:      file, ends: make(chan *process, 3), starts: make(chan func()),
	}
	defer close(l.starts)
	go l.starter()
	if _, err := l.start(-1, 0); err != nil { // what the first start takes for good
		t.Fatal(err)
	}
	endedOf(l)
	useAllDescriptors(t)
	if len(l.reserve) != reserved {
		t.Fatalf("%d descriptors are held back, want %d", len(l.reserve), reserved)
	}
	if _, err := l.start(-1, 0); err != nil {
		t.Errorf("with the reserve: %v", err)
	} else {
		endedOf(l)
	}
	l.reserve.release()
	useAllDescriptors(t)
	_, err = l.start(-1, 0)
	if err == nil || !strings.Contains(err.Error(), "the limit of open files of this process is") || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("without it: %v", err)
	}
}

// endedOf waits for the process that a launch has started.
func endedOf(l *launch) { (<-l.ends).orders.Close() }

// useAllDescriptors opens files until no more can be opened, for the time of the test.
func useAllDescriptors(t *testing.T) {
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	few := usual
	few.Cur = min(few.Cur, 100)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for {
		file, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, file)
	}
	t.Cleanup(func() {
		for _, file := range files {
			file.Close()
		}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &usual)
	})
}
