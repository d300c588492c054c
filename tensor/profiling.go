package tensor

import "spmoe/tensor/profile"

// Profiling starts to count time for family f, until End. A kernel begins with
//
//	defer ex.Profiling(profile.Attention).End()
//
// Its own time then counts for its family, and the time afterwards for the caller's family.
func (ex *Exec) Profiling(f profile.Family) Profiling {
	if ex == nil {
		return Profiling{}
	}
	work := ex.Profile.Work()
	return Profiling{ex, ex.Enter(f), work}
}

// Profiling is a section of work that Exec.Profiling began.
type Profiling struct {
	ex     *Exec
	before profile.Family // of the enclosing section
	work   profile.Work   // of the enclosing section, too
}

// End switches back to the family of the enclosing section.
func (p Profiling) End() {
	if p.ex != nil {
		p.ex.Enter(p.before)
		p.ex.Profile.Continue(p.work)
	}
}

// Enter switches the Profile of ex, if there is one, to family f. It returns the previous family.
func (ex *Exec) Enter(f profile.Family) (before profile.Family) {
	if ex == nil {
		return profile.Rest
	}
	if ex.Progress != nil {
		ex.Progress.Add(1)
	}
	return ex.Profile.Switch(f)
}

// ProfilingProduct is Profiling for a product [m, k]·[k, n]. Group g of its rows ends before
// ends[g]; nil: there are no groups.
func (ex *Exec) ProfilingProduct(f profile.Family, m, n, k int, ends []int32) Profiling {
	p := ex.Profiling(f)
	if ex == nil || !ex.Profile.Tracing() {
		return p
	}
	w := profile.Work{M: m, N: n, K: k, Groups: len(ends)}
	begin := int32(0)
	for _, end := range ends {
		w.Largest, begin = max(w.Largest, int(end-begin)), end
	}
	ex.Profile.Describe(f, w)
	return p
}

// ProfilingRows is Profiling for work on a matrix.
func (ex *Exec) ProfilingRows(f profile.Family, rows, cols int) Profiling {
	return ex.ProfilingProduct(f, rows, cols, 0, nil)
}

// describeRows says, for a trace, that the following work of the current section is on a matrix,
// until End. A single row takes too little time to be shown.
func (ex *Exec) describeRows(m Matrix) profile.Refined {
	if ex == nil || m.Rows < 2 {
		return profile.Refined{}
	}
	return ex.Profile.Refine(profile.Work{M: m.Rows, N: m.Cols})
}

// productFamily returns the family of a product with left operand a.
func productFamily(a Matrix, grouped bool, pass profile.Pass) profile.Family {
	if a.dtype == BF16 {
		return profile.Product(profile.BF16, grouped, pass)
	}
	return profile.Product(profile.FP32, grouped, pass)
}

// passOf returns the pass of a layer that computes a·b. The weight b is transposed in the forward
// pass and is not transposed in dgrad.
func passOf(b Matrix) profile.Pass {
	if b.colStride == 1 {
		return profile.Dgrad
	}
	return profile.Forward
}
