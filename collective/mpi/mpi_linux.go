//go:build mpi

package mpi

// #include "shim.h"
import "C"

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"spmoe/collective"
	"spmoe/collective/heap"
)

// startLimit is the first limit of a process: the program sets its own when it knows it.
const startLimit = 10 * time.Minute

// Start joins the processes that a launcher has started. All of them call it once.
func Start(l Launched) (*Process, error) {
	runtime.LockOSThread() // some MPIs must be finalized by the thread that initialized them
	defer endAfter(startLimit, "start").Stop()
	var provided C.int
	if rc := C.spmoe_begin(&provided); rc != C.MPI_SUCCESS {
		return nil, fmt.Errorf("starting MPI: %w", failed(rc))
	}
	if provided < C.MPI_THREAD_SERIALIZED {
		return nil, fmt.Errorf("this MPI supports calls from one thread only: use an MPI built with thread support")
	}
	var key, rank, size C.int
	if rc := C.spmoe_order(&key, &rank, &size); rc != C.MPI_SUCCESS {
		return nil, fmt.Errorf("ordering the ranks: %w", failed(rc))
	}
	p := &Process{Rank: int(rank), Ranks: int(size), Limit: startLimit}
	if l.Ranks > 1 && p.Ranks != l.Ranks {
		return nil, fmt.Errorf("%s has started %d processes, but MPI sees %d: this program was built with another MPI, or srun needs the type of MPI (srun --mpi=list, then --mpi=pmix or --mpi=pmi2)",
			l.By, l.Ranks, p.Ranks)
	}
	if p.Ranks > collective.MaxRanks {
		return nil, fmt.Errorf("%s has started %d ranks: at most %d are possible", l.By, p.Ranks, collective.MaxRanks)
	}
	if err := p.locateRanks(int(key)); err != nil {
		return nil, err
	}
	if err := p.countCores(); err != nil {
		return nil, err
	}
	if len(p.Placement.First) > 1 {
		p.Network = newNetwork(p)
	}
	return p, nil
}

// failed returns the error of an MPI error code.
func failed(rc C.int) error {
	text := make([]byte, C.MPI_MAX_ERROR_STRING)
	var n C.int
	C.MPI_Error_string(rc, (*C.char)(unsafe.Pointer(&text[0])), &n)
	return fmt.Errorf("MPI: %s", text[:n])
}

// Gather sends bytes to all processes, and returns those of each, by rank. All send the same
// number. If a process does not come within the limit, the job ends.
func (p *Process) Gather(mine []byte) [][]byte { return p.gather(everywhere, mine) }

// within is the set of processes that take part in an MPI call.
type within bool

const (
	everywhere within = true
	onHost     within = false
)

// gather sends bytes to processes, and returns the bytes of each, by rank.
func (p *Process) gather(w within, mine []byte) [][]byte {
	n := p.Ranks
	everywhere := C.int(1)
	if w == onHost {
		n, everywhere = p.Placement.Part(p.Host).Ranks, 0
	}
	all := make([]byte, n*len(mine))
	var missing C.int
	rc := C.spmoe_gather(everywhere, unsafe.Pointer(&mine[0]), C.int(len(mine)), unsafe.Pointer(&all[0]), C.double(p.Limit.Seconds()), &missing)
	switch {
	case rc != C.MPI_SUCCESS:
		p.fail(failed(rc))
	case missing >= 0 && w == onHost:
		missing += C.int(p.Placement.First[p.Host])
		fallthrough
	case missing >= 0:
		p.fail(fmt.Errorf("rank %d has not come to the start or the end of the job within %v", missing, p.Limit))
	}
	parts := make([][]byte, n)
	for r := range parts {
		parts[r] = all[r*len(mine):][:len(mine)]
	}
	return parts
}

// fail ends the job on all hosts, because no other process can be told.
func (p *Process) fail(err error) {
	fmt.Fprintf(os.Stderr, "launcher: rank %d: %v\n", p.Rank, err)
	p.Abort(1)
}

// locateRanks determines which rank is on which host. key distinguishes hosts.
func (p *Process) locateRanks(key int) error {
	name := make([]byte, C.MPI_MAX_PROCESSOR_NAME)
	var length C.int
	if rc := C.MPI_Get_processor_name((*C.char)(unsafe.Pointer(&name[0])), &length); rc != C.MPI_SUCCESS {
		return fmt.Errorf("the name of this host: %w", failed(rc))
	}
	clear(name[length:])
	p.Placement = &collective.Placement{Ranks: p.Ranks}
	last := ""
	for r, entry := range p.gather(everywhere, append(fmt.Appendf(nil, "%12d%12d", key, os.Getpid()), name...)) {
		if entry := string(entry); entry[:12] != last {
			last = entry[:12]
			p.Placement.First = append(p.Placement.First, r)
			p.Placement.Names = append(p.Placement.Names, string(bytes.TrimRight([]byte(entry[24:]), "\x00")))
		}
		if r == p.Rank {
			p.Host = len(p.Placement.First) - 1
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(entry[12:24])))
		if err != nil {
			return fmt.Errorf("the process of rank %d: %w", r, err)
		}
		p.PIDs = append(p.PIDs, pid)
	}
	return nil
}

// countCores adds up the processors that the ranks of each host may use.
func (p *Process) countCores() error {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return fmt.Errorf("reading the processors that may be used: %w", err)
	}
	of := unsafe.Slice((*byte)(unsafe.Pointer(&mine)), unsafe.Sizeof(mine))
	all := p.gather(everywhere, of)
	for host := range p.Placement.First {
		part := p.Placement.Part(host)
		union := make([]byte, len(of))
		for r := part.First; r < part.First+part.Ranks; r++ {
			for i, b := range all[r] {
				union[i] |= b
			}
		}
		for _, b := range union {
			p.Cores += bits.OnesCount8(b)
		}
	}
	return nil
}

// ShareFile returns the path of the file that the first rank of this host shares, for the other
// ranks; empty: it has none. All ranks of the host call it.
func (p *Process) ShareFile(file *os.File) string {
	words := make([]byte, 64)
	if file != nil {
		copy(words, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()))
	}
	return string(bytes.TrimRight(p.gather(onHost, words)[0], "\x00"))
}

// ShareHeap creates the heap of this host's ranks, with control bytes of control memory and region
// bytes per rank. All ranks of the host call it.
func (p *Process) ShareHeap(control int, region int64) (*heap.Heap, error) {
	part := p.Placement.Part(p.Host)
	var file *os.File
	var err error
	if p.Rank == part.First {
		file, err = heap.Create(part, control, region, 0)
	}
	path := p.ShareFile(file)
	if path == "" && err == nil {
		err = fmt.Errorf("rank %d could not create the shared memory of this host's ranks", part.First)
	}
	if err != nil {
		return nil, err
	}
	if file == nil {
		if file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			return nil, fmt.Errorf("opening the shared memory of this host's ranks: %w (run them as one user who can see their processes in /proc)", err)
		}
	}
	defer file.Close()
	h, err := heap.Open(file)
	p.gather(onHost, []byte{1}) // before the file is closed that the others open
	return h, err
}

// endAfter ends this process if a call of MPI, which may wait for another process for ever, takes
// longer than the limit. The program that started the ranks then ends the others.
func endAfter(limit time.Duration, of string) *time.Timer {
	return time.AfterFunc(limit, func() {
		fmt.Fprintf(os.Stderr, "launcher: another rank has not come to the %s of the job within %v\n", of, limit)
		os.Exit(1)
	})
}

// Abort ends the job on all hosts with an exit code.
func (p *Process) Abort(code int) { C.MPI_Abort(C.MPI_COMM_WORLD, C.int(code)) }

// Finalize leaves MPI, which waits for all processes to do so.
func (p *Process) Finalize() {
	if n, ok := p.Network.(*network); ok {
		n.close()
	}
	if p.Limit > 0 {
		defer endAfter(p.Limit, "end").Stop()
	}
	if C.spmoe_finalizes() != 0 {
		C.MPI_Finalize()
		return
	}
	C.spmoe_barrier()
	leavePMI()
}

// leavePMI tells MPICH's launcher that this process ends normally, through PMI-1. MPI_Finalize of
// MPICH 4 over UCX does so too, but may first wait for ever for a peer that has already closed its
// connections.
func leavePMI() {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil {
		return
	}
	launcher, answer := os.NewFile(uintptr(fd), "PMI"), make([]byte, 64)
	for _, says := range []string{"cmd=barrier_in\n", "cmd=finalize\n"} {
		if _, err := launcher.WriteString(says); err != nil {
			return
		}
		if _, err := launcher.Read(answer); err != nil {
			return
		}
	}
}
