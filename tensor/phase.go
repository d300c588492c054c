package tensor

import "spmoe/tensor/profile"

// Profiling says that work of family f begins, until End. A kernel begins with
//
//	defer ex.Profiling(profile.Attention).End()
//
// which counts its time for its family, and what follows for its caller's.
func (ex *Exec) Profiling(f profile.Family) Profiling { return Profiling{ex, ex.Enter(f)} }

// Profiling is a stretch of work that Exec.Profiling began.
type Profiling struct {
	ex     *Exec
	before profile.Family // of the work around it
}

// End returns to the family of the work before.
func (p Profiling) End() { p.ex.Enter(p.before) }

// Enter tells the Profile of ex, if it has one, that work of family f begins, and returns the
// family of the work before.
func (ex *Exec) Enter(f profile.Family) (before profile.Family) {
	if ex == nil {
		return profile.Rest
	}
	if ex.Progress != nil {
		ex.Progress.Add(1)
	}
	return ex.Profile.Switch(f)
}

// productFamily returns the family of a product with a in it.
func productFamily(a Matrix, grouped bool, pass profile.Pass) profile.Family {
	if a.dtype == BF16 {
		return profile.Product(profile.BF16, grouped, pass)
	}
	return profile.Product(profile.FP32, grouped, pass)
}

// passOf returns which product of a layer a·b is: weights come transposed in its forward pass, as
// they are in dgrad.
func passOf(b Matrix) profile.Pass {
	if b.colStride == 1 {
		return profile.Dgrad
	}
	return profile.Forward
}
