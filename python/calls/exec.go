package calls

import (
	"cmp"
	"fmt"
	"runtime"
	"sync"

	"spmoe/launcher/system"
	"spmoe/tensor"
)

// A call looks at the free memory if its arrays have at least checkedElements elements: scratch
// memory is less than 16 bytes for each, and a few MiB. What it is, a dry run tells. Up to
// retainedBytes of it stay for the next call.
const (
	checkedElements = 4 << 20
	retainedBytes   = 256 << 20
)

// idle holds the Execs that no call uses, by their number of threads. A caller may have several
// threads, each with a call of its own.
var idle = struct {
	sync.Mutex
	byThreads map[int][]*tensor.Exec
}{byThreads: map[int][]*tensor.Exec{}}

func borrow(threads int) *tensor.Exec {
	idle.Lock()
	defer idle.Unlock()
	if all := idle.byThreads[threads]; len(all) > 0 {
		idle.byThreads[threads] = all[:len(all)-1]
		return all[len(all)-1]
	}
	return tensor.NewParallelExec(threads)
}

// Guarded calls f and returns its panic as an error. Packages panic on operands that do not fit
// together, and their messages say what is wrong. A panic of Go's runtime is a defect of ours.
func Guarded(f func() error) (err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("a defect of spmoe, please report it: %w", problem)
		default:
			err = fmt.Errorf("%v", problem)
		}
	}()
	return f()
}

// run calls f on an Exec with some threads; 0: one per processor. elements is the size of the
// arrays. If it is large, run first calls f in a dry run, and returns an error if f needs more
// memory than is available, which is a MemoryError in Python.
func run(threads int32, elements int64, f func(ex *tensor.Exec) error) error {
	n := cmp.Or(int(threads), runtime.GOMAXPROCS(0))
	return Guarded(func() error {
		used := int64(0)
		if elements >= checkedElements {
			dry := tensor.NewDryExec()
			if err := f(dry); err != nil {
				return err
			}
			used = int64(dry.Peak())
		}
		if free := system.ReadMemory().Available; used > 16*checkedElements && used > free {
			return fmt.Errorf("MemoryError: this call needs %s of scratch memory, %s are available: give fewer rows at a time",
				system.Bytes(used), system.Bytes(free))
		}
		ex, whole := borrow(n), false
		defer func() {
			if !whole || used > retainedBytes { // after a panic its state is unknown
				ex.Close()
				return
			}
			ex.Reset()
			idle.Lock()
			defer idle.Unlock()
			idle.byThreads[n] = append(idle.byThreads[n], ex)
		}()
		err := f(ex)
		whole = true
		return err
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
