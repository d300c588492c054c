package calls

import (
	"fmt"
	"runtime"
	"sync"

	"spmoe/launcher/system"
	"spmoe/tensor"
)

// mostThreads bounds the threads of a call.
const mostThreads = 1024

// Scratch memory up to this size stays with its Exec after a call, so that the next one does not
// ask the system for it again.
const retainedBytes = 256 << 20

// A call looks at the free memory if its arrays have at least checkedElements elements. Scratch
// memory is less than scratchPerElement bytes for each, and a few MiB. What it is, a dry run tells.
const (
	checkedElements   = 4 << 20
	scratchPerElement = 16
)

// idle holds the execution contexts that no call uses, by their number of threads. A caller may
// have several threads, each with a call of its own.
var idle = struct {
	sync.Mutex
	byThreads map[int][]*context
}{byThreads: map[int][]*context{}}

// context is an Exec, and the scratch memory that it holds.
type context struct {
	*tensor.Exec
	bytes int
}

// layouts holds Execs without memory, for the shapes of quantized matrices.
var layouts = sync.Pool{New: func() any { return tensor.NewDryExec() }}

// Threads returns the number of threads that 0 stands for.
func Threads() int { return runtime.GOMAXPROCS(0) }

func borrow(threads int) *context {
	idle.Lock()
	defer idle.Unlock()
	if all := idle.byThreads[threads]; len(all) > 0 {
		idle.byThreads[threads] = all[:len(all)-1]
		return all[len(all)-1]
	}
	if threads == 1 {
		return &context{Exec: tensor.NewExec()}
	}
	return &context{Exec: tensor.NewParallelExec(threads)}
}

func (c *context) giveBack(threads int) {
	c.Reset()
	if c.bytes > retainedBytes {
		c.Trim() // the first one only forgets what has been in use
		c.Trim()
		c.bytes = 0
	}
	idle.Lock()
	defer idle.Unlock()
	idle.byThreads[threads] = append(idle.byThreads[threads], c)
}

// run calls f on an Exec with some threads. elements is the size of the arrays. If it is large, run
// first calls f in a dry run, and returns an error if f needs more memory than is available.
func run(threads int32, elements int64, f func(ex *tensor.Exec) error) error {
	n := int(threads)
	if n == 0 {
		n = Threads()
	}
	if n < 1 || n > mostThreads {
		return fmt.Errorf("threads is %d: give 1 to %d, or 0 for all processors", n, mostThreads)
	}
	return guarded(func() error {
		used := 0
		if elements >= checkedElements {
			dry := tensor.NewDryExec()
			if err := f(dry); err != nil {
				return err
			}
			used = dry.Peak()
		}
		c := borrow(n)
		defer func() {
			if problem := recover(); problem != nil {
				c.Close() // its state is unknown
				panic(problem)
			}
			c.giveBack(n)
		}()
		if more := int64(used - c.bytes); more > checkedElements*scratchPerElement {
			if free := Available(); more > free {
				return fmt.Errorf("%w: this call needs %s of scratch memory, %s are available: give fewer rows at a time",
					ErrMemory, system.Bytes(more), system.Bytes(free))
			}
		}
		c.bytes = max(c.bytes, used)
		return f(c.Exec)
	})
}

// elements returns the number of elements of some arrays. Any of them may be nil.
func elements(all ...*Array) (n int64) {
	for _, a := range all {
		if a != nil {
			n += a.Rows * a.Cols * max(a.Groups, 1)
		}
	}
	return n
}

// Available returns the memory in bytes that this process may still use.
func Available() int64 { return system.ReadMemory().Available }
