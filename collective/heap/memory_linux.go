package heap

// The heap of processes: an anonymous file. It needs no name to clean up and no quota, and it
// vanishes with the last process that has it open.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Create creates the memory of a heap for processes, which inherit the file and Open it, with a
// region and a vault of the given sizes per rank. Regions take pages when they are written, vaults
// at once. The size of the file is sealed, so that no process can make another's access fail.
func Create(p Part, control int, region, vault int64) (*os.File, error) {
	ranks := p.Ranks
	region, vault = wholePages(region), wholePages(vault)
	file, err := NewFile("spmoe-heap")
	if err != nil {
		return nil, err
	}
	fd, size := int(file.Fd()), sizeOf(ranks, control, region, vault)
	err = unix.Ftruncate(fd, size)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		h := newHeader(p, control)
		h.region, h.vault, h.cores = region, vault, int64(runtime.NumCPU())
		err = writeHeader(fd, h)
	}
	if err == nil && vault > 0 {
		err = unix.Fallocate(fd, 0, size-int64(ranks)*vault, int64(ranks)*vault)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			err = nil // some sandboxes lack it: vaults take pages when they are written, as regions do
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("heap: %d bytes of shared memory for %d ranks: %w", size, ranks, err), file.Close())
	}
	return file, nil
}

// NewFile creates an empty file in memory, which the name helps to find in /proc.
func NewFile(name string) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("heap: creating shared memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func wholePages(bytes int64) int64 { return (bytes + pageSize - 1) &^ (pageSize - 1) }

func writeHeader(fd int, h *header) error {
	_, err := unix.Pwrite(fd, unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Offsetof(h.generation)), 0)
	return err
}

// Open maps the memory that Create has created. It is mapped until Close.
func Open(file *os.File) (*Heap, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("heap: %w", err)
	}
	if info.Size() < headerSize {
		return nil, fmt.Errorf("heap: file %s has %d bytes: it is not a heap", file.Name(), info.Size())
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("heap: mapping %d bytes of shared memory: %w", info.Size(), err)
	}
	if !(*header)(unsafe.Pointer(&memory[0])).describes(info.Size()) {
		return nil, errors.Join(fmt.Errorf("heap: file %s of %d bytes is not a heap of this version", file.Name(), info.Size()), unix.Munmap(memory))
	}
	h := &Heap{used: map[int]*regionUse{}}
	h.attach(memory, nil)
	h.spins = h.part.Ranks <= int(h.header.cores) && !h.parks // this process may be bound to some of them
	return h, nil
}

// maxWorld is the maximum number of ranks that a verdict can represent.
const maxWorld = 1<<16 - 2

// describes reports whether a header belongs to a heap of this size. The bounds prevent
// overflow if the header is garbage.
func (h *header) describes(size int64) bool {
	return h.magic == magic && h.ranks >= 1 && h.ranks <= size/lineSize && h.control >= 0 && h.control <= size &&
		h.first >= 0 && h.world <= maxWorld && h.first <= h.world-h.ranks &&
		h.region >= 0 && h.region <= size/h.ranks && h.vault >= 0 && h.vault <= size/h.ranks &&
		sizeOf(int(h.ranks), int(h.control), h.region, h.vault) == size
}

// Close unmaps the heap of processes, which must not be used any more.
func (h *Heap) Close() error {
	if !h.Shared() {
		return nil
	}
	return unix.Munmap(h.memory)
}

// parkInKernel returns when the word may have changed from seen.
func parkInKernel(word *atomic.Uint32, seen uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(seen), 0, 0, 0)
}

// wakeInKernel wakes all waiters on the word, in any process.
func wakeInKernel(word *atomic.Uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<31-1, 0, 0, 0)
}

// yieldToKernel lets another process run that waits for this processor, if there is one.
func yieldToKernel() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// The operations of futex(2), without FUTEX_PRIVATE_FLAG: the word is shared between processes.
const (
	futexWait = 0
	futexWake = 1
)
