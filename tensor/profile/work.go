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
