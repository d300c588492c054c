//go:build linux && amd64

package main

// The loop that traces all threads of a program and its children.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"spmoe/internal/testing/amx/tiles"
)

// tracer traces a program.
type tracer struct {
	root    int // the process ID of the program
	threads map[int]*thread
	code    codeWindow

	instructions, products, stops int // executed
}

// thread is a traced thread.
type thread struct {
	id   int
	unit tiles.Unit
}

func newTracer(root int) *tracer {
	return &tracer{root: root, threads: map[int]*thread{}}
}

// trace runs until the program and its children ended, and returns how the program ended.
func (t *tracer) trace() (ended unix.WaitStatus, err error) {
	for {
		var status unix.WaitStatus
		id, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return ended, nil
		case err != nil:
			return 0, fmt.Errorf("wait for the program: %w", err)
		case status.Stopped():
			if err := t.resume(id, status); err != nil {
				return 0, err
			}
			continue
		}
		delete(t.threads, id)
		if id == t.root {
			ended = status
		}
	}
}

// resume lets a stopped thread continue.
func (t *tracer) resume(id int, status unix.WaitStatus) error {
	deliver := status.StopSignal()
	switch {
	case t.threads[id] == nil:
		t.threads[id] = &thread{id: id}
		deliver = 0 // a traced thread begins with a stop
		if id == t.root {
			const all = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK |
				unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
			if err := unix.PtraceSetOptions(id, all); err != nil {
				return fmt.Errorf("trace the program: %w", err)
			}
		}
	case deliver == unix.SIGTRAP && status.TrapCause() > 0: // a new thread, process or program
		deliver = 0
		if status.TrapCause() == unix.PTRACE_EVENT_EXEC {
			t.threads[id].unit = tiles.Unit{}
		}
	case deliver == unix.SIGILL:
		executed, err := t.execute(t.threads[id])
		if err != nil {
			return gone(err)
		}
		if executed {
			deliver = 0
		}
	}
	return gone(unix.PtraceCont(id, int(deliver)))
}

// gone ignores the error of a thread that was killed.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// execute executes the AMX instructions at which a thread stands. executed is false if the program
// must get the SIGILL: there is no AMX instruction, or a CPU would raise an exception.
func (t *tracer) execute(th *thread) (executed bool, err error) {
	var raw unix.PtraceRegs
	if err := unix.PtraceGetRegs(th.id, &raw); err != nil {
		return false, fmt.Errorf("registers of thread %d: %w", th.id, err)
	}
	regs := tiles.Registers{raw.Rax, raw.Rcx, raw.Rdx, raw.Rbx, raw.Rsp, raw.Rbp, raw.Rsi, raw.Rdi,
		raw.R8, raw.R9, raw.R10, raw.R11, raw.R12, raw.R13, raw.R14, raw.R15}
	t.stops++
	t.code.read(th.id, raw.Rip)
	var fault error
	for fault == nil {
		in, ok := t.code.at(raw.Rip)
		if !ok {
			break
		}
		regs[tiles.IP] = raw.Rip + uint64(in.Size)
		if fault = th.unit.Execute(in, &regs, memory(th.id)); fault != nil {
			fmt.Fprintf(os.Stderr, "amx: %v at %#x: %v\n", in, raw.Rip, fault)
			break
		}
		t.instructions++
		if in.Op == tiles.DotBF16 || in.Op == tiles.DotInt8 {
			t.products++
		}
		raw.Rip += uint64(in.Size)
		executed = true
	}
	if executed {
		if err := th.jump(raw.Rip); err != nil {
			return false, err
		}
	}
	return executed && fault == nil, nil
}

// jump sets the address of the next instruction. It is the only register that tiles change.
func (th *thread) jump(address uint64) error {
	var user unix.PtraceRegs // begins the structure that PTRACE_POKEUSER writes
	value := binary.NativeEndian.AppendUint64(nil, address)
	if _, err := unix.PtracePokeUser(th.id, unsafe.Offsetof(user.Rip), value); err != nil {
		return fmt.Errorf("registers of thread %d: %w", th.id, err)
	}
	return nil
}
