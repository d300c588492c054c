package tensor

// Work in independent parts on a rank's threads, for the kernels of this package and of others.

// Parallel calls body for parts [lo, hi) that together cover n items, each part on one of the
// threads of ex with an Exec of its own: scratch memory and an arena, whose tensors live until the
// part ends. It returns when all parts have.
//
// arg is whatever body needs; body should be a function of the package, not a closure, so that a
// warm call allocates nothing. work is the size of the job, in operations of a matrix product that
// would take as long: little work stays on the caller, as does what a part itself wants to run in
// parallel. Results must not depend on where parts begin. A panic in a part is the caller's.
func Parallel[A any](ex *Exec, n, work int, arg A, body func(ex *Exec, arg A, lo, hi int)) {
	if n < 1 {
		return
	}
	if !ex.shares(work) || n < 2 {
		onePart(ex, arg, 0, n, body)
		return
	}
	t := taskOf[A](ex.pool)
	t.arg, t.body = arg, body
	defer t.clear()
	ex.parallel(n, work, operands{}, t.part)
}

func onePart[A any](ex *Exec, arg A, lo, hi int, body func(ex *Exec, arg A, lo, hi int)) {
	mark := ex.Mark()
	defer ex.Release(mark)
	body(ex, arg, lo, hi)
}

// A task is what all parts of one Parallel call read. A pool keeps one for each type of argument,
// because a closure would be allocated for every call.
type task[A any] struct {
	arg  A
	body func(ex *Exec, arg A, lo, hi int)
	part func(ex *Exec, _ operands, lo, hi int) // of this task
}

func taskOf[A any](p *pool) *task[A] {
	for _, known := range p.tasks {
		if t, ok := known.(*task[A]); ok {
			return t
		}
	}
	t := &task[A]{}
	t.part = func(ex *Exec, _ operands, lo, hi int) { onePart(ex, t.arg, lo, hi, t.body) }
	p.tasks = append(p.tasks, t)
	return t
}

// clear lets go of the argument's memory.
func (t *task[A]) clear() {
	var none A
	t.arg, t.body = none, nil
}
