//go:build !linux

package heap

import (
	"errors"
	"os"
	"sync/atomic"
)

var errLinux = errors.New("heap: ranks can be processes on Linux only: use goroutines")

// Create creates the memory of a heap for processes, on Linux only.
func Create(p Part, control int, region, vault int64) (*os.File, error) { return nil, errLinux }

// NewFile creates an empty file in memory, on Linux only.
func NewFile(name string) (*os.File, error) { return nil, errLinux }

// Open maps the memory that Create has created.
func Open(file *os.File) (*Heap, error) { return nil, errLinux }

// Close unmaps the heap of processes.
func (h *Heap) Close() error { return nil }

func parkInKernel(*atomic.Uint32, uint32) { panic(errLinux) }
func wakeInKernel(*atomic.Uint32)         { panic(errLinux) }
func yieldToKernel()                      { panic(errLinux) }
