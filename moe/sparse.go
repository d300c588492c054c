package moe

import "spmoe/tensor"

// sparseKind is [attentionKind] of sparse attention.
type sparseKind struct {
	latentKind
	shared bool // the layer takes the choice of an earlier one
}

func (c sparseKind) linears(add func(name string, in, out int, expands bool)) {
	c.latentKind.linears(add)
	if !c.shared {
		add("index_q", c.QRank, c.IndexHeads*c.IndexDim, false)
		add("index_k", c.Dim, c.IndexDim, false)
	}
}

// vectors includes the matrix that weighs the heads of the indexer: like norms, it is in FP32.
func (c sparseKind) vectors() int {
	if c.shared {
		return c.latentKind.vectors()
	}
	return c.latentKind.vectors() + c.IndexHeads*c.Dim + 2*c.IndexDim
}

func (c sparseKind) build(b *builder, prefix string, layer int, rope *tensor.RotaryTable) attention {
	a := c.latentKind.build(b, prefix, layer, rope).(*latentAttention)
	a.sparse = &sparseKeys{}
	if !c.shared {
		a.sparse.indexer = newIndexer(b, c.Config, prefix+"indexer.", rope)
	}
	return a
}
