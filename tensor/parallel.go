package tensor

// Data-parallel loops on a rank's threads, for the kernels of this package and of others.

// Parallel divides n items into parts [lo, hi) and calls body for each part on one of the threads
// of ex. It returns when all parts are complete. Each call gets an Exec of its own for scratch
// memory. Tensors from its arena live until the part ends.
//
// arg holds the data that body needs. body should be a package-level function, not a closure, so
// that a warm call allocates nothing. In a dry run it is called once, without items, and must not
// touch the memory that it allocates.
//
// work is the cost of the job, as the number of operations of a matrix product that takes the same
// time. A small job stays on the calling thread. So does a Parallel call from within a part.
// Results must not depend on where parts begin. A panic in a part becomes a panic of the caller.
func Parallel[A any](ex *Exec, n, work int, arg A, body func(ex *Exec, arg A, lo, hi int)) {
	if n < 1 {
		return
	}
	if ex.dry {
		onePart(ex, arg, 0, 0, body)
		return
	}
	if !ex.worthSharing(work) || n < 2 {
		onePart(ex, arg, 0, n, body)
		return
	}
	t := taskOf[A](ex.queue)
	t.arg, t.body = arg, body
	defer t.clear()
	ex.parallel(n, work, operands{}, t.part)
}

func onePart[A any](ex *Exec, arg A, lo, hi int, body func(ex *Exec, arg A, lo, hi int)) {
	mark := ex.Mark()
	defer ex.Release(mark)
	body(ex, arg, lo, hi)
}

// A task is the data that all parts of one Parallel call read. A work queue keeps one task per
// argument type, because a closure would be allocated on every call.
type task[A any] struct {
	arg  A
	body func(ex *Exec, arg A, lo, hi int)
	part func(ex *Exec, _ operands, lo, hi int) // runs one part of this task
}

func taskOf[A any](q *workQueue) *task[A] {
	for _, known := range q.tasks {
		if t, ok := known.(*task[A]); ok {
			return t
		}
	}
	t := &task[A]{}
	t.part = func(ex *Exec, _ operands, lo, hi int) { onePart(ex, t.arg, lo, hi, t.body) }
	q.tasks = append(q.tasks, t)
	return t
}

// clear drops the references to the argument's memory.
func (t *task[A]) clear() {
	var none A
	t.arg, t.body = none, nil
}
