package moe

// The linear layers of a model: the one list from which FLOPs, bytes, memory and the projections
// follow.

// LinearLayer is a weight matrix [Out, In] that some transformer layers have in common.
type LinearLayer struct {
	Name string
	Part Part
	MTP  bool // belongs to the MTP module

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

// Linears returns the linear layers in the order of a pass, the MTP module's last. A model without
// dense layers or without experts lists theirs with zero Layers. Shared experts are left out if
// there are none.
func (c Config) Linears() []LinearLayer {
	all := append(c.blockLinears(make([]LinearLayer, 0, 32), c.Layers, c.DenseLayers), c.headLinear())
	if c.MTPLayers == 0 {
		return all
	}
	own := len(all)
	all = c.blockLinears(append(all, matrix("mtp_join", Joint, 2*c.Dim, c.Dim, 1)), 1, 0)
	head := c.headLinear() // the MTP module uses the model's own head
	head.Held = 0
	all = append(all, head)
	for i := range all[own:] {
		all[own+i].MTP = true
	}
	return all
}

// matrix returns a matrix that occurs once in each of some transformer layers.
func matrix(name string, part Part, in, out, layers int) LinearLayer {
	return LinearLayer{Name: name, Part: part, In: in, Out: out, Layers: layers, Held: 1, Met: 1}
}

func (c Config) headLinear() LinearLayer { return matrix("head", Head, c.Dim, c.Vocab, 1) }

// blockLinears appends the matrices of some transformer layers. The first dense of them have a
// dense FFN.
func (c Config) blockLinears(all []LinearLayer, layers, dense int) []LinearLayer {
	sparse := layers - dense
	c.kind().linears(func(name string, in, out int, expands bool) {
		l := matrix(name, Projections, in, out, layers)
		l.Expands = expands
		all = append(all, l)
	})
	all = gated(all, "ffn_down", matrix("ffn_gate_up", Dense, c.Dim, c.DenseInter, dense))
	all = append(all, matrix("router", Router, c.Dim, c.Experts, sparse))
	if c.SharedExperts > 0 {
		all = gated(all, "shared_down", matrix("shared_gate_up", Shared, c.Dim, c.SharedExperts*c.ExpertInter, sparse))
	}
	expert := matrix("experts_gate_up", Routed, c.Dim, c.ExpertInter, sparse)
	expert.Held, expert.Met = c.Experts, c.TopK
	return gated(all, "experts_down", expert)
}

// gated appends the two matrices of a SwiGLU network as they are multiplied. Gate and up are one
// matrix; the argument up has the width of the network as Out.
func gated(all []LinearLayer, downName string, up LinearLayer) []LinearLayer {
	down := up
	down.Name, down.In, down.Out = downName, up.Out, up.In
	up.Out *= 2
	return append(all, up, down)
}
