package moe

import (
	"math"
	"strings"

	"spmoe/tensor"
)

// The kinds of DeepSeek-V4's attention. All see a window of the last tokens. The layers with
// entries see tokens further back, too: the entries of an indexer's choice, or all of more
// compressed ones.
const (
	slidingAttention = "sliding"
	compressedSparse = "csa"
	heavyCompression = "hca"
)

// compressedKind is [attentionKind] of DeepSeek-V4.
type compressedKind struct {
	Config
	kind string
}

// attentionList returns the kinds in Attention, separated by commas.
func (c Config) attentionList() (list []string) {
	for kind := range strings.SplitSeq(c.Attention, ",") {
		list = append(list, strings.TrimSpace(kind))
	}
	return list
}

// attentionOf returns the kind of layer i. The last two of the list go on to the end of the model.
func (c Config) attentionOf(i int) string {
	list := c.attentionList()
	if n := len(list); i >= n {
		last := min(n, 2)
		i = n - last + (i-n)%last
	}
	return list[i]
}

// has reports whether a layer is of the kind.
func (c Config) hasAttention(kind string) bool {
	for i := range c.Layers {
		if c.attentionOf(i) == kind {
			return true
		}
	}
	return false
}

func (c compressedKind) validate(must func(bool, string, ...any)) {
	for _, kind := range c.attentionList() {
		must(kind == slidingAttention || kind == compressedSparse || kind == heavyCompression,
			"model.attention has %.60q: give a list of %s, %s and %s, separated by commas", kind, slidingAttention, compressedSparse, heavyCompression)
	}
	sizes := []size{
		{"q_rank", c.QRank, 1 << 16}, {"window", c.Window, 1 << 26}, {"nope_dim", c.NopeDim, 1 << 12},
		{"o_groups", c.OutputGroups, 1 << 10}, {"o_rank", c.OutputRank, 1 << 16},
	}
	if c.hasAttention(compressedSparse) {
		sizes = append(sizes, size{"csa_rate", c.CSARate, 1 << 20}, size{"index_heads", c.IndexHeads, 1 << 10}, size{"index_dim", c.IndexDim, 1 << 12}, size{"index_top_k", c.IndexTopK, 1 << 26})
		must(c.IndexDim >= c.RopeDim, "model.index_dim is %d: give at least model.rope_dim, %d", c.IndexDim, c.RopeDim)
	}
	if c.hasAttention(heavyCompression) {
		sizes = append(sizes, size{"hca_rate", c.HCARate, 1 << 20})
	}
	for _, f := range sizes {
		f.validate(must)
	}
	must(c.ValueDim == c.KeyDim(), "model.value_dim is %d: with model.attention, values are keys of model.nope_dim + model.rope_dim, %d", c.ValueDim, c.KeyDim())
	must(c.KVHeads == 0 && c.KVRank == 0, "model.kv_heads is %d and model.kv_rank is %d: model.attention has one head of keys and compresses no other way, give 0 and 0", c.KVHeads, c.KVRank)
	must(c.Heads%max(c.OutputGroups, 1) == 0, "model.o_groups is %d: it must divide model.heads, %d", c.OutputGroups, c.Heads)
	must(!c.QKNorm && !c.QKVBias && !c.OutputBias, "model.qk_norm, model.qkv_bias and model.output_bias belong to grouped-query attention: remove them with model.attention")
	must(c.MTPLayers == 0, "model.mtp_layers is %d: with model.attention there is no multi-token prediction here, give 0", c.MTPLayers)
	must(atLeast(1, c.CompressTheta) && c.CompressTheta > 1, "model.compress_theta is %g: give a number above 1", c.CompressTheta)
}

// rate returns the tokens of an entry; 0: the layer has none.
func (c compressedKind) rate() int {
	switch c.kind {
	case compressedSparse:
		return c.CSARate
	case heavyCompression:
		return c.HCARate
	}
	return 0
}

// overlaps reports whether an entry takes the window before its own, too.
func (c compressedKind) overlaps() bool { return c.kind == compressedSparse }

// compressedCols returns the columns of the values of a compressor.
func (c compressedKind) compressedCols(width int) int {
	if c.overlaps() {
		return 2 * width
	}
	return width
}

func (c compressedKind) linears(add func(name string, in, out int, expands bool)) {
	add("q_a", c.Dim, c.QRank, false)
	add("q_b", c.QRank, c.Heads*c.KeyDim(), false)
	add("kv", c.Dim, c.KeyDim(), false)
	if c.rate() > 0 {
		add(c.kind+"_kv_gate", c.Dim, 2*c.compressedCols(c.KeyDim()), false)
	}
	if c.kind == compressedSparse {
		add("index_kv_gate", c.Dim, 2*c.compressedCols(c.IndexDim), false)
		add("index_q", c.QRank, c.IndexHeads*c.IndexDim, false)
	}
	add("o_a", c.Heads*c.KeyDim()/c.OutputGroups, c.OutputGroups*c.OutputRank, false)
	add("o_b", c.OutputGroups*c.OutputRank, c.Dim, false)
}

// vectors includes sinks, the places in windows, and the weights of the indexer's heads, which are
// in FP32 like norms.
func (c compressedKind) vectors() int {
	n := c.QRank + c.KeyDim() + c.Heads
	if c.rate() > 0 {
		n += c.rate()*c.compressedCols(c.KeyDim()) + c.KeyDim()
	}
	if c.kind == compressedSparse {
		n += c.rate()*c.compressedCols(c.IndexDim) + c.IndexDim + c.IndexHeads*c.Dim
	}
	return n
}

func (c compressedKind) shape() tensor.AttentionShape {
	scale := float32(1 / math.Sqrt(float64(c.KeyDim())))
	return tensor.AttentionShape{Heads: c.Heads, KVHeads: 1, KeyDim: c.KeyDim(), ValueDim: c.KeyDim(), Scale: scale}
}

// keys returns the keys that a token at the end of a sequence attends to.
func (c compressedKind) keys(seq int) int {
	switch n := min(c.Window, seq); c.kind {
	case compressedSparse:
		return n + min(c.IndexTopK, seq/c.CSARate)
	case heavyCompression:
		return n + seq/c.HCARate
	default:
		return n
	}
}

// entryElements returns the elements of entries per token, with those of an indexer's keys.
func (c compressedKind) entryElements() int {
	switch c.kind {
	case compressedSparse:
		return (c.KeyDim() + c.IndexDim) / c.CSARate
	case heavyCompression:
		return c.KeyDim() / c.HCARate
	}
	return 0
}

func (c compressedKind) rotary(t rotaryTables) *tensor.RotaryTable {
	if c.rate() > 0 {
		return t.compressed
	}
	return t.main
}

// groupCols returns the elements of the heads of a group of the output.
func (c compressedKind) groupCols() int { return c.Heads * c.KeyDim() / c.OutputGroups }
