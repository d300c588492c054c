package projection

// The terms of the budget, block by block, in GPU-milliseconds per token.

import (
	"math"

	"spmoe/moe"
	"spmoe/mx"
)

// estimator computes the costs of one run with one setting of the parameters.
type estimator struct {
	run   Run
	model Model
	gpu   Hardware
	stack Stack
	set   Settings
	table *kernels
	flash attentionKernel
	to    Spread
	fill  float64 // unmasked share of the scores, relative to a causal mask

	recomputed []string // modules

	far map[string]float64 // products whose shape is far from all measured ones
}

func newEstimator(r Run, set Settings) (*estimator, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return newChecked(r, set)
}

// newChecked is newEstimator for a run that has passed Check.
func newChecked(r Run, set Settings) (*estimator, error) {
	e := &estimator{run: r, set: set, fill: 1}
	var err error
	if e.model, err = r.model(); err != nil {
		return nil, err
	}
	if e.gpu, err = r.hardware(); err != nil {
		return nil, err
	}
	if e.stack, err = r.stack(); err != nil {
		return nil, err
	}
	if e.recomputed, err = recomputed(r.Recompute); err != nil {
		return nil, err
	}
	if e.to, err = r.spread(e.model, int(min(e.gpu.Domain.Value, float64(r.EP)))); err != nil {
		return nil, err
	}
	d := data()
	e.table = tables()[e.gpu.Kernels]
	var own bool
	if e.flash, own = d.parameters.Attention[e.stack.Attention+"@"+e.gpu.Kernels]; !own {
		e.flash = d.parameters.Attention[e.stack.Attention]
	}
	if r.Routing == Natural { // loads that change end full graphs, and the host reads them
		if r.Graphs == "" && e.stack.Graphs == "full" {
			e.stack.Graphs = "partial"
		}
		if r.Graphs != "full" { // those that the run names read no loads
			e.stack.Stall = max(e.stack.Stall, e.set[naturalStall])
		}
	}
	if e.stack.DocumentMask {
		e.fill = set[maskDensity]
	}
	return e, nil
}

// millis returns the milliseconds for an amount at a rate per second.
func millis(amount, perSecond float64) float64 { return 1e3 * amount / perSecond }

// quantized reports whether a layer's products run in FP8 or MXFP8.
func (e *estimator) quantized(p moe.Part) bool {
	switch e.run.Precision {
	case "mxfp8-experts":
		return p == moe.Routed
	case "mxfp8", "fp8", "nvfp4":
		return p != moe.Router && p != moe.Joint && (p != moe.Head || e.stack.HeadFP8)
	}
	return false
}

// rate returns the FLOP/s of one product.
func (e *estimator) rate(l moe.LinearLayer, p pass) float64 {
	op, rows := "gemm", float64(e.run.MicroBatch*e.run.Seq/e.run.cp())
	if l.Part == moe.Routed {
		op, rows = "grouped", e.rowsPerExpert()
	}
	own8 := e.quantized(l.Part) && e.table.dtype8
	share, distance := e.table.share(op, p, own8, rows, l.In, l.Out)
	if distance > far {
		if e.far == nil {
			e.far = map[string]float64{}
		}
		e.far[l.Name] = distance
	}
	peak := e.gpu.BF16.Value
	if own8 {
		peak = e.gpu.FP8.Value
	}
	rate := share * peak * 1e12 * e.set[gemmScale]
	if l.Part == moe.Routed {
		rate *= e.set[groupedScale]
	}
	if e.quantized(l.Part) && !own8 {
		rate *= e.speedup(l.Part)
	}
	if e.stack.Hidden > 0 {
		rate *= e.stack.SMShare
	}
	if e.stack.Products > 0 {
		rate *= e.stack.Products
	}
	return rate
}

// speedup returns the speed-up of MXFP8 over BF16.
func (e *estimator) speedup(p moe.Part) float64 {
	switch {
	case e.run.Precision == "nvfp4":
		return e.set[nvfp4Speedup]
	case p != moe.Routed:
		return e.set[denseSpeedup]
	case e.stack.NetSpeedup:
		return data().parameters.Net.At(e.rowsPerRank()) * e.set[netScale]
	}
	return e.set[groupedSpeedup]
}

// rowsPerRank returns the mean number of rows of all experts of a GPU per pass.
func (e *estimator) rowsPerRank() float64 {
	return float64(e.run.tokensPerRank()) * float64(e.model.TopK)
}

func (e *estimator) rowsPerExpert() float64 {
	return e.rowsPerRank() * float64(e.run.EP) / float64(e.model.Experts)
}

// repetitions returns how often the work of the routed experts is done: by each GPU of a
// tensor-parallel group that dispatches all tokens.
func (e *estimator) repetitions() float64 { return float64(max(e.run.Duplicate, 1)) }

// linears adds a block's products and their casts.
func (e *estimator) linears(c *costs, list []moe.LinearLayer) {
	for _, l := range list {
		symbol, times := Dense, 1.0
		if l.Part == moe.Routed {
			symbol, times = Grouped, e.repetitions()*e.to.Imbalance
		}
		forwards := 1 + e.repeats(l)
		f := flops(l) * times
		c[symbol] += millis(f*forwards, e.rate(l, forward)) + millis(f, e.rate(l, dgrad)) + millis(f, e.rate(l, wgrad))
		if e.quantized(l.Part) && !(l.Part == moe.Routed && e.stack.NetSpeedup) {
			// The input is read once as BF16 and written as codes and scales in both directions,
			// like the gradient of the output.
			bytes := (float64(l.In)*forwards + float64(l.Out)) * float64(l.Met) * (2 + 2*mx.E4M3.BytesPerElement()) * e.stack.CastShare
			c[Casts] += millis(bytes*times, e.set[castShare]*e.hbm())
		}
	}
}

func (e *estimator) hbm() float64 { return e.gpu.HBM.Value * 1e12 }

// nic returns the bytes per second of a GPU's NIC, each way. A speed that is only assumed has a
// prior.
func (e *estimator) nic() float64 {
	rate := e.gpu.NIC.Value * 1e9
	if e.gpu.NIC.Kind == Assumed && e.run.NIC == 0 {
		rate *= e.set[nicSpeed]
	}
	return rate
}

// scores adds the attention of one layer. A backward pass costs 2.5 forward passes.
func (e *estimator) scores(c *costs) {
	f := e.model.attentionFLOPs(e.run.Seq) * e.fill
	peak := e.gpu.BF16.Value * 1e12 * e.set[attentionScale]
	if e.model.Rate > 0 {
		peak *= e.model.Rate
	}
	c[Attention] += millis(f*(1+e.again("core_attn")), e.flash.Forward*peak) + millis(2.5*f*e.ordered(1.4), e.flash.Backward*peak)
}

// ordered returns how much longer something takes whose sums have a fixed order: times, if the run
// is deterministic, and 1 otherwise.
func (e *estimator) ordered(times float64) float64 {
	if e.run.Deterministic {
		return times
	}
	return 1
}

// rowwise adds what a block reads and writes outside of products: norms and residual sums over the
// hidden state, rotary embedding and assembly of queries, keys and values, activation functions,
// and scans. The backward pass moves twice as much.
func (e *estimator) rowwise(c *costs, b Block) {
	m := e.model
	norms, residuals, heads := 2*float64(b.Parts*m.Dim), 3*float64(b.Parts*m.Dim), 0.0
	if n := float64(m.Streams); n > 1 { // sums over all streams, and maps into and out of them
		residuals = (3*n + n + 1) * float64(b.Parts*m.Dim)
	}
	if b.Scores {
		heads = float64(m.Heads * (4*m.KeyDim() + 2*m.ValueDim))
		if m.KVHeads > 0 {
			heads = float64(2 * (m.Heads + m.KVHeads) * m.ValueDim)
		}
	}
	elements := 3*(norms+residuals+heads+3*b.Inter) + e.full()*residuals +
		e.again("layernorm")*norms + e.again("mla_up_proj")*heads + e.again("moe_act")*3*b.Inter
	c[Rowwise] += millis(2*elements*e.stack.RowwiseShare*e.ordered(1.15), e.set[rowwiseShare]*e.hbm()) +
		millis(2*(3+e.full())*b.Scan, e.set[scanShare]*e.hbm())
}

// exchange describes the all-to-alls of one layer.
func (e *estimator) exchange() Exchange {
	ops := 4 + 2*e.full()
	x := Exchange{Operations: int(ops), Hidden: clamp(e.stack.Hidden*e.set[hiddenScale], 0, 1)}
	plain, forwardRow := e.model.RowBytes("bf16"), e.model.RowBytes(e.run.Wire)
	one := func(row float64) (bytes, nic, ms float64) {
		copies, remote := e.to.Choices, e.to.Choices*e.to.RemoteShare
		ranks := float64(e.run.EP)
		linked := copies * (min(ranks, e.gpu.Domain.Value) - 1) / ranks
		nicShare := clamp(e.set[nicA2ALimit]-e.set[nicA2ALoss]/e.nodes(), 0.1, 1)
		nvShare := e.gpu.NVLinkAllToAll.At(ranks)
		if e.stack.Dedup {
			copies, remote, linked = e.to.Ranks, e.to.RemoteNodes, e.to.Ranks*(ranks-1)/ranks
			nicShare, nvShare = e.set[nicDedup], e.gpu.NVLinkDedup.At(ranks)
		}
		nic = remote * row
		ms = max(millis(nic, nicShare*e.nic()), millis(linked*row, nvShare*e.set[nvlinkScale]*e.gpu.NVLink.Value*1e9))
		return copies * row, nic, ms
	}
	bytes, nic, ms := one(plain)
	_, _, first := one(forwardRow)
	x.Bytes, x.NIC, x.Each = bytes, nic, ms
	dispatches := 1 + e.full()
	x.Total = e.repetitions() * e.to.Imbalance * (first*dispatches + ms*(ops-dispatches))
	x.Each *= e.repetitions() * float64(e.run.MicroBatch*e.run.Seq)
	return x
}

// nodes counts the NVLink domains, or nodes, that an expert-parallel group spans.
func (e *estimator) nodes() float64 { return math.Ceil(float64(e.run.EP) / e.gpu.Domain.Value) }

// routed adds the costs that only a layer with experts has.
func (e *estimator) routed(c *costs) {
	touches := (e.stack.ForwardTouches*(1+e.full()) + e.stack.BackwardTouches) * e.set[touchesScale]
	bytes := touches * float64(e.model.TopK) * e.model.RowBytes("bf16")
	c[Shuffle] += e.repetitions() * e.to.Imbalance * e.ordered(1.3) * millis(bytes, e.set[shuffleShare]*e.hbm())
	if e.run.EP > 1 {
		x := e.exchange()
		c[AllToAll] += x.Total * (1 - x.Hidden)
	}
}

// block returns the costs of one of its layers.
func (e *estimator) block(b Block) (c costs) {
	e.linears(&c, b.Linears)
	if b.Scores {
		e.scores(&c)
	}
	e.rowwise(&c, b)
	e.parallel(&c, b)
	if b.hasExperts() {
		e.routed(&c)
	}
	c[Host] += e.kernelPasses() * e.stack.Launches * float64(b.Parts) / 2 * launched[e.stack.Graphs] * e.perMicroBatch(e.set[launchMicros])
	e.hostBound(&c, b)
	return c
}

// parallel adds the all-gathers and reduce-scatters of tensor parallelism, of the hidden state
// around each sub-layer and in both directions, and of context parallelism, of keys and values.
func (e *estimator) parallel(c *costs, b Block) {
	rate := e.gpu.NVLinkCollective.Value * e.gpu.NVLink.Value * 1e9
	if e.run.TP > 1 {
		ops := float64(b.Parts) * (4 + 2*e.full())
		c[TensorComm] += millis(ops*2*float64(e.model.Dim)*float64(e.run.TP-1)*(1-e.stack.TPHidden), rate)
	}
	if cp := e.run.cp(); cp > 1 && b.Scores { // keys and values twice, and their gradients
		c[TensorComm] += millis(3*2*2*float64(max(e.model.KVHeads, 1)*e.model.ValueDim)*float64(cp-1), rate)
	}
}
