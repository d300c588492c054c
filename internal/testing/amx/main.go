//go:build linux && amd64

// Amx runs a program on a CPU without AMX and executes its AMX instructions in Go.
//
//	go build -o bin/amx ./internal/testing/amx
//	go test -tags amxemulated -exec "$PWD/bin/amx" ./tensor/internal/gemm
//
// The program runs under ptrace. An AMX instruction raises SIGILL, upon which package tiles
// executes it. Where a CPU would raise an exception, amx says why, and the program gets the SIGILL.
// All other signals reach the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"
)

func main() {
	stats := flag.Bool("stats", false, "print the number of AMX instructions")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: amx [-stats] PROGRAM [ARGUMENTS]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	begin := time.Now()
	t, status, err := run(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "amx:", err)
		os.Exit(2)
	}
	if *stats {
		seconds := time.Since(begin).Seconds()
		fmt.Fprintf(os.Stderr, "amx: %d AMX instructions (%d products) at %d stops in %.1f s, %.0f per second\n",
			t.instructions, t.products, t.stops, seconds, float64(t.instructions)/seconds)
	}
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
}

// run runs a program to its end and returns how it ended. The thread that starts a program is the
// one that must trace it.
func run(command []string) (*tracer, unix.WaitStatus, error) {
	if err := needed(); err != nil {
		return nil, 0, err
	}
	runtime.LockOSThread()
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, 0, err
	}
	process, err := os.StartProcess(path, command, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return nil, 0, fmt.Errorf("trace %s: %w", path, err)
	}
	passOn(process)
	t := newTracer(process.Pid)
	status, err := t.trace()
	return t, status, err
}

// needed returns an error if this CPU executes AMX instructions itself.
func needed() error {
	if cpuid.CPU.Supports(cpuid.AMXTILE) {
		return errors.New("this CPU has AMX: run the program itself, without the tag amxemulated")
	}
	return nil
}

// passOn passes the signals that end a program on to it. `go test` sends SIGQUIT after its timeout.
func passOn(p *os.Process) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGQUIT)
	go func() {
		for s := range signals {
			p.Signal(s)
		}
	}()
}
