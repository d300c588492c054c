//go:build linux && amd64

package main

// Access to the memory of a traced thread.

import (
	"fmt"

	"golang.org/x/sys/unix"

	"spmoe/internal/testing/amx/tiles"
)

// codeWindow holds the bytes of a program from an address on.
type codeWindow struct {
	from  uint64
	bytes [256]byte
	size  int
}

// read reads a window. It is shorter if the next page is missing.
func (w *codeWindow) read(thread int, from uint64) {
	local := []unix.Iovec{{Base: &w.bytes[0]}}
	local[0].SetLen(len(w.bytes))
	n, _ := unix.ProcessVMReadv(thread, local, []unix.RemoteIovec{{Base: uintptr(from), Len: len(w.bytes)}}, 0)
	w.from, w.size = from, max(n, 0)
}

// at decodes the AMX instruction at an address from the start of the window on.
func (w *codeWindow) at(address uint64) (tiles.Instruction, bool) {
	return tiles.Decode(w.bytes[min(int(address-w.from), w.size):w.size])
}

// memory is the memory of a thread with this ID.
type memory int

// Read implements tiles.Memory.
func (m memory) Read(rows [][]byte, address, stride uint64) error {
	return m.transfer(unix.ProcessVMReadv, "read", rows, address, stride)
}

// Write implements tiles.Memory.
func (m memory) Write(rows [][]byte, address, stride uint64) error {
	return m.transfer(unix.ProcessVMWritev, "write", rows, address, stride)
}

type transfer func(pid int, local []unix.Iovec, remote []unix.RemoteIovec, flags uint) (int, error)

func (m memory) transfer(do transfer, name string, rows [][]byte, address, stride uint64) error {
	local := make([]unix.Iovec, len(rows))
	for i, row := range rows {
		local[i].Base = &row[0]
		local[i].SetLen(len(row))
	}
	bytes := len(rows) * len(rows[0])
	if n, err := do(int(m), local, ranges(len(rows), len(rows[0]), address, stride), 0); err != nil || n != bytes {
		return fmt.Errorf("%s %d rows of %d bytes from address %#x on, %#x apart: %d of %d bytes are accessible",
			name, len(rows), len(rows[0]), address, stride, max(n, 0), bytes)
	}
	return nil
}

// ranges lists the memory of rows. Adjacent rows are one range, which is faster.
func ranges(rows, rowBytes int, address, stride uint64) []unix.RemoteIovec {
	if stride == uint64(rowBytes) {
		return []unix.RemoteIovec{{Base: uintptr(address), Len: rows * rowBytes}}
	}
	var all []unix.RemoteIovec
	for i := range rows {
		all = append(all, unix.RemoteIovec{Base: uintptr(address + uint64(i)*stride), Len: rowBytes})
	}
	return all
}
