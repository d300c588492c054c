package moe

// LinearLayer is a weight matrix [Out, In] that some transformer layers have in common.
type LinearLayer struct {
	Name  string
	Part  Part
	Ahead bool // belongs to a layer that predicts further ahead: see Config.MTPLayers

	// Expands marks products that compute queries, keys or values of all heads from something
	// smaller. Selective recomputation runs these again.
	Expands bool

	In, Out int
	Layers  int // transformer layers that have it; 1 outside of layers
	// matrices of this kind per layer: the number of routed experts, 1, or 0 if it is another
	// layer's
	Held int
	Met  int // of these, the number that a token uses
}

// Params returns the elements of one matrix.
func (l LinearLayer) Params() int64 { return int64(l.In) * int64(l.Out) }

// matrix returns a matrix that occurs once in a layer.
func matrix(name string, part Part, in, out int) LinearLayer {
	return LinearLayer{Name: name, Part: part, In: in, Out: out, Layers: 1, Held: 1, Met: 1}
}

// addGated adds the two matrices of a SwiGLU network as they are multiplied. Gate and up are one
// matrix; the argument up has the width of the network as Out.
func addGated(add func(LinearLayer), downName string, up LinearLayer) {
	down := up
	down.Name, down.In, down.Out = downName, up.Out, up.In
	up.Out *= 2
	add(up)
	add(down)
}
