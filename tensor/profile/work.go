package profile

// What a section of work is done on, for traces.

// Work describes a section of work. Zero means unknown.
type Work struct {
	Layer int // of the model, from 1; 0: none
	// M, N, K is the shape of a product [M, K]·[K, N]. Otherwise M and N are rows and columns, and
	// K is 0.
	M, N, K int
	Groups  int // of rows, one per expert
	Largest int // rows of the largest group
}

// Tracing reports whether a trace is being made, so that descriptions are of use.
func (t *Timer) Tracing() bool { return t != nil && t.Trace != nil }

// Describe describes the current section if it belongs to family f. It does not describe a product
// within a product, whose time counts for the outer one.
func (t *Timer) Describe(f Family, w Work) {
	if t.Tracing() && t.family == f {
		w.Layer = t.work.Layer
		t.work = w
	}
}

// Refine describes the following work, which is part of the current section, for a trace. It does
// nothing where the section has a description: that of a product, say. The work ends with End.
func (t *Timer) Refine(w Work) Refined {
	if !t.Tracing() || t.work.M > 0 {
		return Refined{}
	}
	t.Switch(t.family) // what was before is other work
	r := Refined{t, t.work}
	w.Layer = t.work.Layer
	t.work = w
	return r
}

// Refined is work that Refine described.
type Refined struct {
	t      *Timer // nil: it was not described
	before Work
}

// End ends the work.
func (r Refined) End() {
	if r.t != nil {
		r.t.Switch(r.t.family)
		r.t.work = r.before
	}
}

// Work returns the description of the current work.
func (t *Timer) Work() (w Work) {
	if t != nil {
		w = t.work
	}
	return w
}

// Continue says that the following work is that which an inner section has interrupted.
func (t *Timer) Continue(w Work) {
	if t.Tracing() {
		w.Layer = t.work.Layer
		t.work = w
	}
}

// SetLayer says that the following work belongs to a layer of the model, from 1; 0: to none. It
// returns the previous layer.
func (t *Timer) SetLayer(layer int) (before int) {
	if t == nil {
		return 0
	}
	if t.Trace != nil {
		t.Switch(t.family) // what was before belongs to another layer
	}
	before, t.work = t.work.Layer, Work{Layer: layer}
	return before
}
