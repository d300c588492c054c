package projection

// The formula: counts over rates. All times are GPU-milliseconds per token, which add up.

import (
	"math"

	"spmoe/moe"
)

// Symbol names a term of a budget.
type Symbol int

// The terms, in the order of the formula.
const (
	Dense      Symbol = iota // t_D: products of attention, dense and shared networks, head
	Grouped                  // t_G: products of the routed experts
	Attention                // t_F: scores and values
	Memory                   // t_M: what the memory's bandwidth bounds
	Shuffle                  // t_L: permuting and summing rows on a GPU
	AllToAll                 // t_A: the exchange, as far as it is not hidden
	TensorComm               // t_T: all-gathers and reduce-scatters of tensor and context parallelism
	Imbalance                // t_I: waiting for the fullest rank
	Host                     // t_H: waiting for the host
	Software                 // t_S: what an untuned or deterministic run takes longer
	Pipeline                 // t_P: idle stages
	Scale                    // t_W: waiting for the slowest of many GPUs
	DataComm                 // t_dp: gradients and weights of data parallelism, as far as not hidden
	Update                   // t_opt: the optimizer, and what a step takes at least
	symbols
)

// term describes one term: its symbol, its words, its formula and the constants in it.
type term struct {
	name, about, formula string
	constants            []string
}

var terms = [symbols]term{
	{"t_D", "other matmul", "FLOPs / (dense · s · chip · peak · w/(w + width)), w = hidden size / TP", []string{"dense", "width", "fp8", "fp8_hopper", "fp4"}},
	{"t_G", "routed GEMM", "d · FLOPs / (grouped · s · chip · peak · w/(w + width) · n/(n + rows)), n = rows per expert", []string{"grouped", "width", "rows", "fp8", "fp8_hopper", "fp4"}},
	{"t_F", "attention", "(3.5 + recomputed) · causal FLOPs / (attention · chip · peak)", []string{"attention"}},
	{"t_M", "memory-bound", "(rowwise · norms, residuals, activations, logits + scan · scans + sparse · indexers + cast · casts, or cast_apart of TorchAO) / HBM", []string{"rowwise", "scan", "sparse", "cast", "cast_apart"}},
	{"t_L", "local shuffle", "d · shuffle · touches · top-k rows / HBM", []string{"shuffle"}},
	{"t_A", "all-to-all", "d · max(bytes / (nic_exchange · NIC, or nic_deepep of DeepEP outside of Megatron), bytes / (nvlink_exchange · NVLink)) · (1 - hidden)", []string{"nic_exchange", "nic_deepep", "nvlink_exchange", "hidden"}},
	{"t_T", "tensor parallel", "tensor · bytes / (collective · NVLink)", []string{"tensor", "collective"}},
	{"t_I", "imbalance", "natural · (I - 1) · (all above)", []string{"natural"}},
	{"t_H", "host", "(gpu⁴ + host⁴)^¼ - gpu, host = graphs · (layers · host_layer + experts · host_expert) / tokens of a pass, times host_eager in TorchTitan", []string{"host_layer", "host_expert", "host_eager", "graphs_partial", "graphs_full"}},
	{"t_S", "software", "(e^(untuned · share) · (1 + deterministic) - 1) · (all above)", []string{"untuned", "deterministic"}},
	{"t_P", "pipeline", "(PP - 1) / (micro-batches · VP) · (all above)", nil},
	{"t_W", "scale", "scale · log₂(GPUs / 512) · (all above)", []string{"scale"}},
	{"t_dp", "data parallel", "6 B per parameter of a GPU / (0.85 · NIC · replicas in an NVLink domain) · nic_data, or nvlink_data within one, over tokens per GPU; sharded for each micro-batch of FSDP", []string{"nic_data", "nvlink_data", "collective", "sharded"}},
	{"t_opt", "update", "(optimizer · parameters / GPUs / HBM + step) / tokens per GPU", []string{"optimizer", "step"}},
}

// String returns the term's symbol, such as t_G.
func (s Symbol) String() string { return terms[s].name }

// MarshalText implements [encoding.TextMarshaler].
func (s Symbol) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// About describes the term in words.
func (s Symbol) About() string { return terms[s].about }

// Formula returns the term's formula with the names of its constants.
func (s Symbol) Formula() string { return terms[s].formula }

// costs are milliseconds per token by term.
type costs [symbols]float64

func (c *costs) sum() (total float64) {
	for _, v := range c {
		total += v
	}
	return total
}

// cost returns the time of a run's work with these constants.
func (k Constants) cost(r Run, h Hardware, w work) (c costs) {
	d, tokens := r.repetitions(), r.tokensPerGPU()
	peak := h.BF16 * 1e9 * k.of(h.Chip, 1) // FLOPs per millisecond
	hbm, nvlink, nic := h.HBM*1e9, h.NVLink*1e6, h.NIC*1e6
	faster := func(p moe.Part) float64 {
		switch {
		case !r.quantized(p):
			return 1
		case r.Precision == "nvfp4":
			return k.of("fp4", 1)
		}
		return k.of(h.FP8, 1)
	}
	reached := func(size, half float64) float64 { return size / (size + half) }

	wide := reached(w.hidden/float64(r.TP), k.at("width"))
	c[Dense] = w.dense/(peak*k.at("dense")*faster(moe.Projections)*wide) + w.plain/(peak*k.at("dense"))
	full := reached(w.width, k.at("width")) * reached(w.rows, k.at("rows"))
	c[Grouped] = d * w.routed / (peak * k.at("grouped") * faster(moe.Routed) * full)
	c[Attention] = w.scores / (peak * k.at("attention"))
	c[Memory] = (w.rowwise*k.at("rowwise") + w.scan*k.at("scan") + w.sparse*k.at("sparse") + w.cast*k.at("cast") +
		w.apart*k.at("cast_apart")) / hbm
	c[Shuffle] = d * w.touched * k.at("shuffle") / hbm
	card := k.at("nic_exchange")
	if r.Exchange == "dedup" && r.Software != "megatron" {
		card = k.at("nic_deepep")
	}
	c[AllToAll] = d * max(w.nic/(nic*card), w.nvlink/(nvlink*k.at("nvlink_exchange")))
	if r.Overlap {
		c[AllToAll] *= 1 - k.at("hidden")
	}
	c[TensorComm] = k.at("tensor") * w.tensor / (nvlink * k.at("collective"))
	c[Imbalance] = k.at("natural") * (r.imbalance() - 1) * c.sum()

	host := k.hostTime(r, w)
	gpu := c.sum()
	c[Host] = math.Pow(math.Pow(gpu, 4)+math.Pow(host, 4), 0.25) - gpu
	slower := math.Exp(k.at("untuned") * r.Untuned)
	if r.Deterministic {
		slower *= 1 + k.at("deterministic")
	}
	c[Software] = (slower - 1) * c.sum()
	c[Pipeline] = float64(r.PP-1) / (max(r.microBatches(), 1) * float64(r.VP)) * c.sum()
	c[Scale] = k.at("scale") * math.Log2(max(float64(r.GPUs)/512, 1)) * c.sum()
	c[DataComm] = k.dataParallel(r, h, w) / tokens
	c[Update] = (k.at("optimizer")*(w.denseParameters+w.routedParameters)/float64(r.GPUs)/hbm + k.at("step")) / tokens
	return c
}

// hostTime returns the time of the host's calls per token. Plain PyTorch calls a third as often for
// experts, because its grouped products are one kernel. TorchTitan does not compile an MoE layer's
// dispatch and combine (1a36996, parallelize.py), and waits for the counts of rows in each.
func (k Constants) hostTime(r Run, w work) float64 {
	passes := 1.0
	if r.whole() {
		passes = 4.0 / 3
	}
	if r.Software == "torchtitan" && w.experts > 0 {
		passes *= k.at("host_eager")
	}
	graphs, experts := 1.0, 1.0
	switch r.Graphs {
	case "partial":
		graphs = k.at("graphs_partial")
	case "full":
		graphs, experts = k.at("graphs_full"), k.at("graphs_full")
	}
	if r.quantized(moe.Routed) { // each expert's operands are quantized by kernels of their own
		experts *= 2
	}
	if r.Software != "megatron" {
		experts *= 0.3
	}
	return passes * (graphs*w.layers*k.at("host_layer") + experts*w.experts*k.at("host_expert")) / r.tokensPerPass()
}

// dataParallel returns the milliseconds per step in which gradients (reduced, FP32) and weights
// (gathered, BF16) move and nothing hides it. Between nodes, the replicas of a parameter that an
// NVLink domain holds share its traffic.
func (k Constants) dataParallel(r Run, h Hardware, w work) float64 {
	between := float64(r.GPUs/r.PP) > h.Domain
	move := func(held, replicas, width float64) float64 {
		switch {
		case replicas <= 1:
			return 0
		case between:
			inDomain := max(1, min(h.Domain/width, replicas))
			return k.at("nic_data") * 6 * held / inDomain / (0.85 * h.NIC * 1e6)
		}
		return k.at("nvlink_data") * 6 * held / (k.at("collective") * h.NVLink * 1e6)
	}
	pp, tp, ep := float64(r.PP), float64(r.TP), float64(r.EP)
	ms := move(w.denseParameters/(pp*tp), float64(r.dp()*r.cp()), tp) + move(w.routedParameters/(pp*ep), float64(r.GPUs)/(pp*ep), ep)
	if r.FSDP && r.PP == 1 {
		ms *= k.at("sharded") * r.microBatches()
	}
	return ms
}
