//go:build linux && amd64

package main

// Access to the memory of a traced thread.

import (
	"fmt"

	"golang.org/x/sys/unix"

	"spmoe/internal/testing/amx/tiles"
)

// instruction decodes the instruction at an address.
func (th *thread) instruction(address uint64) (tiles.Instruction, bool) {
	const longest = 15
	var code [longest]byte
	local := []unix.Iovec{{Base: &code[0]}}
	local[0].SetLen(longest)
	// The page after the instruction may be missing.
	n, err := unix.ProcessVMReadv(th.id, local, []unix.RemoteIovec{{Base: uintptr(address), Len: longest}}, 0)
	if err != nil {
		return tiles.Instruction{}, false
	}
	return tiles.Decode(code[:n])
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
	local, remote := make([]unix.Iovec, len(rows)), make([]unix.RemoteIovec, len(rows))
	for i, row := range rows {
		local[i].Base = &row[0]
		local[i].SetLen(len(row))
		remote[i] = unix.RemoteIovec{Base: uintptr(address + uint64(i)*stride), Len: len(row)}
	}
	bytes := len(rows) * len(rows[0])
	if n, err := do(int(m), local, remote, 0); err != nil || n != bytes {
		return fmt.Errorf("%s %d rows of %d bytes from address %#x on, %#x apart: %d of %d bytes are accessible",
			name, len(rows), len(rows[0]), address, stride, max(n, 0), bytes)
	}
	return nil
}
