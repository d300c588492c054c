package moe

// The list of a model's layers, and their linear layers: the one list from which FLOPs, bytes,
// memory and the projections follow.

// layerKinds are the kinds of one layer: how it attends, what each token passes on its own, and
// how it is joined to the residual stream. Layers of equal kinds are equal with ==.
type layerKinds struct {
	attention attentionKind
	feed      feedKind
	residual  residualKind
}

// layer returns the kinds of a layer. The layers that predict further ahead follow the others.
func (c Config) layer(i int) layerKinds {
	k := layerKinds{attention: latentKind{c}, feed: expertsKind{c}, residual: streamKind{}}
	if c.KVHeads != 0 {
		k.attention = groupedKind{c}
	}
	if c.IsDense(i) {
		k.feed = denseKind{c}
	}
	if i >= c.Layers {
		k.residual = joinKind{c}
	}
	return k
}

// AllLayers returns the number of layers, including those that predict further ahead.
func (c Config) AllLayers() int { return c.Layers + c.MTPLayers }

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

// Linears returns the linear layers in the order of a pass, with the head after the layers that it
// follows.
func (c Config) Linears() (all []LinearLayer) {
	for i := range c.AllLayers() {
		if i == c.Layers {
			all = append(all, c.head(false))
		}
		c.layer(i).linears(func(l LinearLayer) {
			l.Ahead = i >= c.Layers
			for at := range all {
				if known := &all[at]; known.Name == l.Name && known.Ahead == l.Ahead {
					known.Layers++
					return
				}
			}
			all = append(all, l)
		})
	}
	return append(all, c.head(c.MTPLayers > 0))
}

// linears calls add with the matrices of a layer in the order of a pass.
func (k layerKinds) linears(add func(LinearLayer)) {
	k.residual.linears(add)
	k.attention.linears(func(name string, in, out int, expands bool) {
		l := matrix(name, Projections, in, out)
		l.Expands = expands
		add(l)
	})
	k.feed.linears(add)
}

// matrix returns a matrix that occurs once in a layer.
func matrix(name string, part Part, in, out int) LinearLayer {
	return LinearLayer{Name: name, Part: part, In: in, Out: out, Layers: 1, Held: 1, Met: 1}
}

// head returns the output head. Predictions further ahead use the model's own.
func (c Config) head(ahead bool) LinearLayer {
	l := matrix("head", Head, c.Dim, c.Vocab)
	if l.Ahead = ahead; ahead {
		l.Held = 0
	}
	return l
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
