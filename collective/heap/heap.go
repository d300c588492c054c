// Package heap is the memory that the ranks of one host share: a control area, and a region per
// rank.
//
// Ranks are goroutines of one process ([New]) or processes ([Create], [Open]): all ranks of a
// world, or those of one host ([Part]). Processes map the heap at different addresses, so its
// content is referred to by offsets. To publish something, a rank stores it, then stores a word
// with an atomic operation, then calls [Heap.Ring] for the ranks that may wait for the word. These
// [Heap.Await] it, first by polling and then parked.
//
// There are no locks in the heap: a rank that dies leaves nothing locked.
package heap

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Heap is the shared memory as one process sees it.
type Heap struct {
	part    Part
	region  int64 // bytes of a rank's region
	memory  []byte
	base    unsafe.Pointer
	header  *header
	control []byte
	start   int64 // offset of the first region
	vault   int64 // bytes of a rank's vault; vaults follow the regions

	bells []bell // where goroutines of this process park; nil: ranks are processes, which park in the kernel
	spins bool   // a waiting rank may spin: there is a processor per rank
	parks bool   // a waiting rank parks at once, see ParkVar

	patience []patience // by rank

	mu   sync.Mutex
	used map[int]*regionUse // allocations of this process, by rank
}

// header is the beginning of the heap.
type header struct {
	magic   uint64
	ranks   int64
	control int64
	region  int64
	vault   int64
	cores   int64 // of the launcher, for all ranks
	first   int64
	world   int64

	// incremented by the launcher when the ranks may begin, and after each failure that was healed
	generation atomic.Uint32
	failure    failure

	// why the launcher asks all ranks to stop; 0: it does not. It outlives generations.
	stop atomic.Uint32
}

// line is the published state of a rank, on its own cache lines.
type line struct {
	bell    atomic.Uint32 // number of rings
	waiting atomic.Uint32 // goroutines of the rank that are parked or about to park
	state   atomic.Uint32
	pid     atomic.Int32
	step    atomic.Int64
	work    atomic.Uint64 // pieces of work done: rises while the rank computes
	kept    atomic.Int64  // 1 + the newest step whose state its vault holds; 0 if it holds none
	// maximum bytes of its region in use: memory beyond it is zero
	used atomic.Int64
	_    [80]byte
}

// State is the state of a rank.
type State uint32

// The states of a rank.
const (
	Absent   State = iota // has not joined yet
	Running               // takes part
	Parked                // waits for the next generation, and does not access other ranks' memory
	Finished              // will make no more calls
)

const (
	magic      = 0x3165_6f6d_7073 // "spmoe1"
	headerSize = 16 << 10
	lineSize   = 128
	pageSize   = 4096
)

var _ = [1]struct{}{}[unsafe.Sizeof(line{})-lineSize]
var _ = [1]struct{}{}[(unsafe.Sizeof(header{})-1)/headerSize]

// Part is the ranks that share a heap: Ranks ranks from First on, of a world of World ranks. Every
// rank is identified by its number in the world.
type Part struct{ First, Ranks, World int }

// Whole returns the part with all ranks of a world.
func Whole(ranks int) Part { return Part{0, ranks, ranks} }

// has reports whether a rank belongs to the part.
func (p Part) has(rank int) bool { return rank >= p.First && rank < p.First+p.Ranks }

// New returns the heap of goroutine ranks, with control bytes for their use. It has no regions,
// because goroutines share all memory.
func New(p Part, control int) *Heap {
	ranks := p.Ranks
	h := &Heap{bells: make([]bell, ranks), used: map[int]*regionUse{}}
	for i := range h.bells {
		h.bells[i].cond.L = &h.bells[i].mu
	}
	words := make([]uint64, sizeOf(ranks, control, 0, 0)/8) // in words, so that everything in it is aligned
	h.attach(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), newHeader(p, control))
	h.spins = ranks <= runtime.GOMAXPROCS(0) && !h.parks
	return h
}

// sizeOf returns the size of a heap in bytes.
func sizeOf(ranks, control int, region, vault int64) int64 {
	return regionsAt(ranks, control) + int64(ranks)*(region+vault)
}

func regionsAt(ranks, control int) int64 {
	return int64(headerSize+ranks*lineSize+control+pageSize-1) &^ (pageSize - 1)
}

func newHeader(p Part, control int) *header {
	return &header{
		magic:   magic,
		ranks:   int64(p.Ranks),
		first:   int64(p.First),
		world:   int64(p.World),
		control: int64(control),
	}
}

// attach sets the fields that follow from a heap's memory. A new heap gets its header.
func (h *Heap) attach(memory []byte, fresh *header) {
	h.memory, h.base = memory, unsafe.Pointer(&memory[0])
	h.header = (*header)(h.base)
	if fresh != nil {
		h.header.magic, h.header.ranks, h.header.control, h.header.region = fresh.magic, fresh.ranks, fresh.control, fresh.region
		h.header.first, h.header.world = fresh.first, fresh.world
	}
	h.region, h.vault = h.header.region, h.header.vault
	h.part = Part{int(h.header.first), int(h.header.ranks), int(h.header.world)}
	h.patience = make([]patience, h.part.Ranks)
	h.parks = os.Getenv(ParkVar) != ""
	lines := headerSize + h.part.Ranks*lineSize
	h.control = memory[lines : lines+int(h.header.control)]
	h.start = regionsAt(h.part.Ranks, len(h.control))
}

// Ranks returns the number of ranks that share the heap.
func (h *Heap) Ranks() int { return h.part.Ranks }

// Part returns the ranks that share the heap.
func (h *Heap) Part() Part { return h.part }

// Shared reports whether ranks are processes, which only see each other's memory in the heap.
func (h *Heap) Shared() bool { return h.bells == nil }

// Spins reports whether every rank has a processor and may keep it while it waits.
func (h *Heap) Spins() bool { return h.spins }

// Control returns the bytes for the ranks' use, zero at first.
func (h *Heap) Control() []byte { return h.control }

// Offset returns the offset of p in the heap; ok is false if p is elsewhere.
func (h *Heap) Offset(p unsafe.Pointer) (offset int64, ok bool) {
	offset = int64(uintptr(p) - uintptr(h.base))
	return offset, offset >= 0 && offset < int64(len(h.memory))
}

// At returns the address of an offset in this process.
func (h *Heap) At(offset int64) unsafe.Pointer {
	if offset < 0 || offset >= int64(len(h.memory)) {
		panic(fmt.Sprintf("heap: offset %d of a heap of %d bytes", offset, len(h.memory)))
	}
	return unsafe.Add(h.base, offset)
}

func (h *Heap) line(rank int) *line {
	return (*line)(unsafe.Add(h.base, headerSize+h.index(rank)*lineSize))
}

// index returns the position of a rank among those that share the heap.
func (h *Heap) index(rank int) int {
	if !h.part.has(rank) {
		panic(fmt.Sprintf("heap: rank %d of %d from rank %d on", rank, h.part.Ranks, h.part.First))
	}
	return rank - h.part.First
}

// SetState publishes the state of a rank. The rank's own process calls it.
func (h *Heap) SetState(rank int, s State) {
	h.line(rank).pid.Store(int32(os.Getpid()))
	h.line(rank).state.Store(uint32(s))
	h.RingAll()
}

// StateOf returns the state of a rank.
func (h *Heap) StateOf(rank int) State { return State(h.line(rank).state.Load()) }

// Process returns the process id of a rank that has joined.
func (h *Heap) Process(rank int) int { return int(h.line(rank).pid.Load()) }

// Progress counts the pieces of work that a rank has done. The rank's computation itself increments
// it, at the end of each kernel, so that it stops when the rank hangs.
func (h *Heap) Progress(rank int) *atomic.Uint64 { return &h.line(rank).work }

// SetStep publishes the step that a rank has reached.
func (h *Heap) SetStep(rank int, step int64) { h.line(rank).step.Store(step) }

// StepOf returns the step that a rank has reached, 0 if unknown.
func (h *Heap) StepOf(rank int) int64 { return h.line(rank).step.Load() }
