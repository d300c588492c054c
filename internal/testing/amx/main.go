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
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

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
	runtime.LockOSThread()
	process, err := os.StartProcess(command[0], command, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return nil, 0, err
	}
	passOn(process)
	t := newTracer(process.Pid)
	status, err := t.trace()
	return t, status, err
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
