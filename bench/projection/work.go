package projection

// What a run computes, moves and calls per token: exact counts from the model's linear layers and
// the layout, without any speed.

import (
	"slices"

	"spmoe/moe"
	"spmoe/mx"
)

// work holds counts per token of the global batch unless they say otherwise. FLOPs and bytes are
// those of forward, backward and recomputation together.
type work struct {
	dense   float64 // FLOPs of products that a precision may quantize
	plain   float64 // FLOPs of products in BF16: head, router
	routed  float64 // FLOPs of routed experts
	scores  float64 // FLOPs of attention, at the rate of heads of 192/128
	rowwise float64 // bytes of norms, residuals, rotary embedding, activation functions, logits
	scan    float64 // bytes of Mamba-2 and Gated DeltaNet
	sparse  float64 // bytes of indexers and gathered keys
	cast    float64 // bytes of quantization, rows and columns in one kernel
	apart   float64 // the same in kernels of their own, which read 16 bits each time
	touched float64 // bytes of permuting routed rows

	nic, nvlink float64 // bytes of the exchange between GPUs, per link
	tensor      float64 // bytes of tensor and context parallelism, over NVLink

	layers  float64 // pairs of sub-layers: what a host calls per micro-batch
	experts float64 // experts of a GPU, over all layers

	rows             float64 // per expert and micro-batch
	hidden           float64 // size of the hidden state
	width            float64 // of the experts' products
	denseParameters  float64
	routedParameters float64
}

// quantized reports whether a part's products run in fewer than 16 bits.
func (r Run) quantized(p moe.Part) bool {
	switch r.Precision {
	case "bf16":
		return false
	case "mxfp8-experts":
		return p == moe.Routed
	}
	return p != moe.Router && p != moe.Joint && p != moe.Head
}

// repeats returns the share of a layer's forward product that recomputation runs again.
func (r Run) repeats(l moe.LinearLayer) float64 {
	// Of q, kv_a, kv_b, o and the three of a feed-forward network, TorchTitan repeats every second.
	const titanRepeats = 0.35
	module := ""
	switch {
	case l.Part == moe.Head:
		return 0
	case r.Recompute == "titan_op" && l.Part != moe.Routed:
		return titanRepeats
	case r.whole():
		return 1
	case l.Part == moe.Dense:
		module = "mlp"
	case l.Expands:
		module = "mla_up_proj"
	case l.Part == moe.Shared:
		module = "shared_expert"
	case l.Part == moe.Routed:
		module = "moe"
	}
	return r.once(module)
}

// once is 1 if a module is recomputed, and 0 otherwise.
func (r Run) once(module string) float64 {
	if r.again(module) {
		return 1
	}
	return 0
}

// touches is the number of times that routed rows are read or written outside of products, forward
// and backward. Megatron's are counted in its code, those of plain PyTorch in TorchTitan's, as if
// its kernels reached the bandwidth of others. TorchTitan's own operators (1a36996: moe.py,
// moe/utils.py, deepep.py) were timed on an H200: see docs/projection.md. In its standard exchange,
// each rank of a tensor-parallel group sums the choices of all tokens of the group.
func (r Run) touches() float64 {
	count := map[[2]string]float64{
		{"megatron", "standard"}:   16,
		{"megatron", "dedup"}:      8,
		{"pytorch", "standard"}:    35,
		{"pytorch", "dedup"}:       15,
		{"torchtitan", "standard"}: 48 + 19*float64(r.TP-1),
		{"torchtitan", "dedup"}:    27,
	}
	return count[[2]string{r.Software, r.Exchange}]
}

// count returns the work of a run that has passed Check.
func (r Run) count(m Model, h Hardware) (w work, err error) {
	for _, b := range slices.Concat(m.Blocks(), m.mtp()) {
		r.countBlock(&w, m, b)
	}
	modules := float64(1 + len(m.mtp()))
	for _, l := range m.linears(false, moe.Head) {
		w.plain += 3 * flops(l)
	}
	w.rowwise += 6 * float64(m.Vocab) * modules // logits are written, read and replaced
	w.denseParameters, w.routedParameters = m.parameters()
	w.hidden, w.width = float64(m.Dim), float64(min(m.Dim, m.ExpertInter))
	w.rows = r.tokensPerPass() * r.repetitions() * float64(m.TopK*r.EP) / float64(m.Experts)
	if m.mainMoE() > 0 && r.EP > 1 {
		err = r.countExchange(&w, m, h)
	}
	return w, err
}

// countBlock adds a block of equal layers.
func (r Run) countBlock(w *work, m Model, b Block) {
	n := float64(b.Layers)
	whole := 0.0
	if r.whole() {
		whole = 1
	}
	for _, l := range b.Linears {
		to := &w.dense
		switch l.Part {
		case moe.Routed:
			to = &w.routed
		case moe.Head, moe.Router, moe.Joint, moe.Streams:
			to = &w.plain
		}
		*to += n * flops(l) * (3 + r.repeats(l))
		if r.quantized(l.Part) {
			r.countCasts(w, l, n)
		}
	}
	norms := 2 * float64(b.Parts*m.Dim)
	residuals := 3 * float64(b.Parts*m.Dim)
	heads := 0.0
	if s := float64(m.Streams); s > 1 { // sums over all residual streams, and maps into and out of them
		residuals = (3*s + s + 1) * float64(b.Parts*m.Dim)
	}
	if b.Scores {
		heads = float64(m.Heads * (4*m.KeyDim() + 2*m.ValueDim))
		if m.KVHeads > 0 {
			heads = float64(2 * (m.Heads + m.KVHeads) * m.ValueDim)
		}
		rate := 1.0
		if m.Rate > 0 {
			rate = m.Rate
		}
		// A backward pass costs 2.5 forward passes.
		w.scores += n * m.attentionFLOPs(r.Seq) * (3.5 + r.once("core_attn")) / rate
		w.sparse += n * m.sparseBytes(r.Seq)
		w.tensor += n * 12 * float64(max(m.KVHeads, 1)*m.ValueDim*(r.cp()-1)) // keys and values three times
	}
	elements := 3*(norms+residuals+heads+3*b.Inter) + whole*residuals +
		r.once("layernorm")*norms + r.once("mla_up_proj")*heads + r.once("moe_act")*3*b.Inter
	w.rowwise += n * 2 * elements
	w.scan += n * 2 * (3 + whole) * b.Scan
	w.tensor += n * float64(b.Parts) * (4 + 2*whole) * 2 * float64(m.Dim*(r.TP-1)) // hidden states, around each sub-layer
	w.layers += n * float64(b.Parts) / 2
	if b.hasExperts() {
		w.touched += n * r.touches() * float64(m.TopK) * 2 * float64(m.routedDim()) * (3 + whole) / 3
		w.experts += n * float64(m.Experts/r.EP)
	}
}

// countCasts adds the bytes that quantizing the operands of n layers' product reads and writes. A
// rank that computes a token's experts again quantizes for them again. TransformerEngine quantizes
// rows and columns at once and keeps weights in 8 bits. TorchAO takes one direction at a time, and
// weights too, for each of the three products.
func (r Run) countCasts(w *work, l moe.LinearLayer, n float64) {
	code, again := mx.E4M3.BytesPerElement(), r.repeats(l)
	in := float64(l.In * l.Met)
	out := float64(l.Out * l.Met)
	weights := float64(l.In*l.Out) / float64(r.TP)
	if l.Part == moe.Routed {
		in *= r.repetitions()
		out *= r.repetitions()
		weights = float64(l.In*l.Out*l.Held) / float64(r.EP)
	}
	if r.Software != "torchtitan" {
		w.cast += n * (in*(1+again) + out) * (2 + 2*code)
		return
	}
	w.apart += n * (in*(2+again) + 2*out + weights*(2+again)/r.tokensPerPass()) * (2 + code)
}

// countExchange adds the all-to-alls: dispatch and combine in both directions, and the forward two
// again if experts are recomputed.
func (r Run) countExchange(w *work, m Model, h Hardware) error {
	ranks := float64(r.EP)
	to, err := r.spread(m, int(min(h.Domain, ranks)))
	if err != nil {
		return err
	}
	remote := to.Choices * to.RemoteShare
	linked := to.Choices * (min(ranks, h.Domain) - 1) / ranks
	if r.Exchange == "dedup" {
		remote, linked = to.RemoteNodes, to.Ranks*(ranks-1)/ranks
	}
	layers := float64(m.mainMoE() + m.MTPLayers*max(1, m.MTPDepth))
	each := layers * (4 + 2*r.once("moe")) * 2 * float64(m.routedDim())
	w.nic, w.nvlink = each*remote, each*linked
	return nil
}

// sparseBytes returns what sparse attention moves per token and layer: the indexer's FP32 scores of
// every key, six times, and the keys that each query gathers for itself, 3.5 times. In DeepSeek-V4
// every other layer has an indexer, over groups of four tokens; those of other models count the
// same. V4's hash layers cost nothing.
func (m Model) sparseBytes(seq int) float64 {
	if m.SparseHeads == 0 {
		return 0
	}
	const group, layersPerIndexer = 4, 2
	index := float64(m.SparseHeads) * float64(seq) / group * 4 * 6 / layersPerIndexer
	return index + float64(m.Variant.Window)*2*float64(max(m.KVHeads, 1)*m.ValueDim)*3.5
}
