package moe

import "strings"

// The settings of sparse attention: which layers have an indexer, and what trains.

// The stages of training, and the rotary pairs of the indexer.
const (
	indexWarmup = "warmup"
	indexSparse = "sparse"

	halfPairs        = "half"
	interleavedPairs = "interleaved"
)

// latentEps is the epsilon of the norms of latents. Of sparse attention, it is fixed.
func (c Config) latentEps() float64 {
	if c.IndexHeads > 0 {
		return indexEps
	}
	return c.NormEps
}

const indexEps = 1e-6

// sharesChoice reports whether layer i takes the choice of an earlier one.
func (c Config) sharesChoice(i int) bool {
	return i >= 0 && i < len(c.IndexerTypes) && c.IndexerTypes[i] == 'S'
}

// hasIndexer reports whether layer i has an indexer.
func (c Config) hasIndexer(i int) bool { return c.choosesKeys() && !c.sharesChoice(i) }

// choosesKeys reports whether layers have sparse attention over keys, not over entries.
func (c Config) choosesKeys() bool { return c.IndexHeads > 0 && c.Attention == "" }

// warmsUp reports whether only indexers train, and attention sees all keys.
func (c Config) warmsUp() bool { return c.IndexStage == indexWarmup }

// IsIndexer reports whether a parameter belongs to an indexer.
func IsIndexer(name string) bool { return strings.Contains(name, ".indexer.") }

// freezes reports whether a parameter does not train.
func (c Config) freezes(name string) bool {
	if IsIndexer(name) {
		return c.IndexWeight == 0
	}
	return c.warmsUp()
}

func (c Config) validateIndexer(must func(bool, string, ...any)) {
	if c.Attention != "" { // compressedKind validates the others
		must(c.IndexRope == "" && c.IndexerTypes == "" && c.IndexStage == "" && c.IndexWeight == 0,
			"model.index_rope, indexer_types, index_stage and index_weight are settings of attention over chosen keys: with model.attention, indexers have none of these and do not train, remove them")
		return
	}
	if c.IndexHeads == 0 {
		must(c.IndexDim == 0 && c.IndexTopK == 0 && c.IndexRope == "" && c.IndexerTypes == "" && c.IndexStage == "" && c.IndexWeight == 0,
			"model.index_heads is 0: index_dim, index_top_k, index_rope, indexer_types, index_stage and index_weight belong to an indexer, give its heads, too")
		return
	}
	must(c.KVHeads == 0 && c.QRank > 0, "model.index_heads is %d with model.kv_heads %d and model.q_rank %d: an indexer reads the queries' latents of latent attention, give kv_heads 0 and a q_rank", c.IndexHeads, c.KVHeads, c.QRank)
	for _, f := range []size{{"index_heads", c.IndexHeads, 1 << 10}, {"index_dim", c.IndexDim, 1 << 12}, {"index_top_k", c.IndexTopK, 1 << 26}} {
		f.validate(must)
	}
	must(c.IndexDim >= c.RopeDim, "model.index_dim is %d: give at least model.rope_dim, %d", c.IndexDim, c.RopeDim)
	must(c.IndexRope == halfPairs || c.IndexRope == interleavedPairs, "model.index_rope is %q: give %s (DeepSeek-V3.2) or %s (GLM-5)", c.IndexRope, halfPairs, interleavedPairs)
	types := c.IndexerTypes
	must(types == "" || len(types) == c.Layers && types[0] == 'F' && strings.Trim(types, "FS") == "",
		"model.indexer_types is %.100q: give a letter for each of the %d layers, F (full) or S (shared), the first one F", types, c.Layers)
	must(c.IndexStage == "" || c.IndexStage == indexWarmup || c.IndexStage == indexSparse, "model.index_stage is %q: give %s or %s", c.IndexStage, indexWarmup, indexSparse)
	must(atLeast(0, c.IndexWeight), "model.index_weight is %g: give 0 or more", c.IndexWeight)
	must(c.IndexWeight > 0 || !c.warmsUp(), "model.index_weight is %g: in the stage %s the indexer's loss is all that trains, give a positive number", c.IndexWeight, indexWarmup)
}
