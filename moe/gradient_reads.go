package moe

// What ranks read from each other to compute the gradients of weights that they hold once. The
// ranks of a communicator count the same bytes in collective.KindBuffers.

import "spmoe/mx"

// GradientReads returns the bytes per token of the global batch that the ranks of one host,
// together, read to compute the gradients of the dense weights. Each rank reads its columns of the
// output's gradient and all columns of the input, from all ranks. One rank reads nothing.
func (c Config) GradientReads(p Precision, ranks int) (sum float64) {
	if ranks == 1 {
		return 0
	}
	size := float64(p.DType.Size())
	for _, l := range c.Linears() {
		if class := l.Part.Class(); class == Linear {
			in, out := c.wgradBytes(p, l)
			sum += float64(l.Layers*l.Held) * (out*float64(l.Out) + float64(wgradParts(l.Out, 0, ranks))*in*float64(l.In))
		}
	}
	uses := float64(1 + min(c.MTPLayers, 1)) // the model and its MTP module use embedding and head
	head := float64(wgradParts(c.Vocab, defaultOutputSizes().unit(c.Vocab), ranks))
	sum += uses * size * (float64(c.Vocab) + head*float64(c.Dim))
	const id = 4
	return sum + uses*(size*float64(c.Dim)+id*float64(wgradParts(c.Vocab, 0, ranks)))
}

// ExpertGradientReads returns the bytes per token of the global batch that the replicas of all
// experts, together, read to compute the gradients of the experts. Each row is read once.
func (c Config) ExpertGradientReads(p Precision) (sum float64) {
	for _, l := range c.Linears() {
		if l.Part.Class() == Expert {
			sum += float64(l.Layers*l.Met*(l.In+l.Out)) * float64(p.DType.Size())
		}
	}
	return sum
}

// wgradBytes returns the bytes per element of the operands of a weight's gradient, averaged over
// the layers: of the input and of the output's gradient.
func (c Config) wgradBytes(p Precision, l LinearLayer) (in, out float64) {
	in, out = float64(p.DType.Size()), float64(p.DType.Size())
	for _, m := range c.Modules(0) {
		if m.Part == l.Part && m.MTP == l.MTP {
			in = m.operandBytes(p, func(r Recipe) mx.Cast { return r.Wgrad.Right })
			out = m.operandBytes(p, func(r Recipe) mx.Cast { return r.Wgrad.Left })
		}
	}
	return in, out
}

// ReplicatedElements returns the lengths of the groups of weights that all ranks of a stage have:
// norms and routers, and matrices.
func (c Config) ReplicatedElements(s Stage) (norms, matrices int64) {
	for _, m := range c.StageModules(s, 0) {
		switch m.Class {
		case Single:
			norms += m.Params
		case Plain, Linear:
			matrices += m.Params
		}
	}
	padded := func(n int64) int64 { return (n + groupMultiple - 1) / groupMultiple * groupMultiple }
	return padded(norms), padded(matrices)
}
