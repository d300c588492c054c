package projection

// What to project: a model, a GPU, a parallel layout and a framework.

import (
	"errors"
	"fmt"
	"math"

	"spmoe/collective/pipeline"
)

// Run is one training recipe on one cluster.
type Run struct {
	Model      string `json:"model"`
	GPU        string `json:"gpu"`
	GPUs       int    `json:"gpus"`
	Precision  string `json:"precision"`   // bf16, mxfp8 (all linears), mxfp8-experts, fp8, nvfp4
	Seq        int    `json:"seq"`         // tokens per sequence
	Batch      int    `json:"batch"`       // sequences per optimizer step, all GPUs together
	MicroBatch int    `json:"micro_batch"` // sequences per pass
	MTP        bool   `json:"mtp"`
	TP         int    `json:"tp"`
	PP         int    `json:"pp"`
	VP         int    `json:"vp"` // pipeline stages per GPU
	// schedule of the pipeline, see package pipeline; empty: 1F1B or, if VP > 1, Interleaved1F1B
	Schedule string `json:"pp_schedule,omitempty"`
	EP       int    `json:"ep"`
	// context-parallel degree: GPUs that share a sequence; 0: 1
	CP int `json:"cp,omitempty"`
	// transformer layers; 0: the model's
	Layers    int    `json:"layers,omitempty"`
	Recompute string `json:"recompute"` // none, selective, titan_op, full, or modules joined by +: see [recomputed]
	Stack     string `json:"stack"`
	Routing   string `json:"routing"`
	// GPUs of a tensor-parallel group that each dispatch all tokens; 1: they share the tokens
	Duplicate int `json:"duplicate"`
	// CUDA graphs: none, partial (attention, router and permutation) or full; empty: the stack's
	Graphs string `json:"graphs,omitempty"`
	// results do not depend on the order in which threads finish: slower attention and sums
	Deterministic bool `json:"deterministic,omitempty"`
	// fullest rank over the mean, for routing "natural"
	Imbalance float64 `json:"imbalance,omitempty"`

	// What-if values; zero: those of the model, the hardware and the stack.
	TopK         int      `json:"top_k,omitempty"`
	GroupLimit   int      `json:"group_limit,omitempty"` // groups that a token may visit
	Wire         string   `json:"wire,omitempty"`        // for the forward dispatch: bf16 or mxfp8
	Dedup        *bool    `json:"dedup,omitempty"`
	Hidden       *float64 `json:"hidden,omitempty"` // hidden share of the exchange
	NIC          float64  `json:"nic_gbs,omitempty"`
	NVLinkDomain int      `json:"nvlink_domain,omitempty"`
	HostMicros   float64  `json:"host_us,omitempty"` // of the host per kernel that it launches

	Hardware *Hardware `json:"-"` // replaces the GPU's file
	Shape    *Model    `json:"-"` // replaces the named model

	Ratios   *Routed `json:"ratios,omitempty"`   // for routing "measured"
	Residual float64 `json:"residual,omitempty"` // t_R, ms per token
}

// Routed is the routing that a run of the engine measured.
type Routed struct {
	// most loaded rank over the mean, averaged over layers and passes
	RankImbalance float64 `json:"rank_imbalance"`
	// distinct ranks per token over those of uniform routing in the same layout
	DistinctOverUniform float64 `json:"distinct_over_uniform"`
	Origin              string  `json:"origin"`
}

// Precisions lists the precisions that can be projected.
func Precisions() []string { return []string{"bf16", "mxfp8-experts", "mxfp8", "fp8", "nvfp4"} }

// quantizesAll reports whether the products of all linears run in less than 16 bits.
func (r Run) quantizesAll() bool { return r.Precision != "bf16" && r.Precision != "mxfp8-experts" }

// tokensPerRank returns the tokens that one GPU dispatches per pass.
func (r Run) tokensPerRank() int {
	return r.MicroBatch * r.Seq / (r.TP * r.cp()) * max(r.Duplicate, 1)
}

func (r Run) cp() int { return max(1, r.CP) }

func (r Run) dp() int { return max(1, r.GPUs/(r.TP*r.PP*r.cp())) }

// microBatches returns the microbatches of a pipeline per step.
func (r Run) microBatches() float64 { return float64(r.Batch) / float64(r.dp()*r.MicroBatch) }

// tokensPerGPU returns N of the formula: tokens per step over GPUs.
func (r Run) tokensPerGPU() float64 { return float64(r.Batch) * float64(r.Seq) / float64(r.GPUs) }

func (r Run) model() (Model, error) {
	var m Model
	if r.Shape != nil {
		m = *r.Shape
	} else {
		var err error
		if m, err = ModelByName(r.Model, r.MTP); err != nil {
			return m, err
		}
	}
	if r.TopK > 0 {
		m.TopK = r.TopK
	}
	if r.GroupLimit > 0 {
		m.TopKGroups = r.GroupLimit
	}
	if r.Layers > 0 {
		m = m.cutTo(r.Layers)
	}
	if m.TopK > m.Experts || m.TopKGroups > m.Groups || m.TopK > m.TopKGroups*m.Experts/m.Groups {
		return m, fmt.Errorf("top-k %d within %d of %d groups of %d experts: give a top-k of at most %d and a limit of at most %d groups",
			m.TopK, m.TopKGroups, m.Groups, m.Experts, min(m.TopKGroups, m.Groups)*m.Experts/m.Groups, m.Groups)
	}
	return m, nil
}

// Experts returns the number of routed experts of the run's model. It is 0 if there are none, or if
// the model is unknown.
func (r Run) Experts() int {
	m, err := r.model()
	if err != nil || m.mainMoE() == 0 {
		return 0
	}
	return m.Experts
}

func (r Run) hardware() (Hardware, error) {
	if r.Hardware != nil {
		return r.Hardware.with(r), nil
	}
	h, err := HardwareByName(r.GPU)
	return h.with(r), err
}

// with returns the hardware with the run's what-if values.
func (h Hardware) with(r Run) Hardware {
	if r.NIC > 0 {
		h.NIC = Value{r.NIC, h.NIC.Unit, "what-if", Assumed}
	}
	if r.HostMicros > 0 {
		h.HostMicros = Value{r.HostMicros, h.HostMicros.Unit, "what-if", Assumed}
	}
	if r.NVLinkDomain > 0 {
		h.Domain = Value{float64(r.NVLinkDomain), h.Domain.Unit, "what-if", Assumed}
	}
	return h
}

func (r Run) stack() (Stack, error) {
	s, ok := data().stacks[r.Stack]
	if !ok {
		return s, oneOf("stack", r.Stack, Stacks())
	}
	if r.Dedup != nil {
		s.Dedup = *r.Dedup
	}
	if r.Hidden != nil {
		s.Hidden = *r.Hidden
	}
	if r.Graphs != "" {
		s.Graphs = r.Graphs
	}
	if _, ok := launched[s.Graphs]; !ok {
		return s, oneOf("graphs", s.Graphs, Graphs())
	}
	return s, nil
}

// Check returns an error with every reason why the run cannot be projected.
func (r Run) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	m, err := r.model()
	errs = append(errs, err, oneOf("precision", r.Precision, Precisions()), oneOf("routing", r.Routing, Routings()))
	h, errHardware := r.hardware()
	_, errStack := r.stack()
	_, errRecompute := recomputed(r.Recompute)
	errs = append(errs, errHardware, errStack, errRecompute)
	const most = 1 << 20
	for _, f := range []struct {
		name  string
		value int
	}{{"gpus", r.GPUs}, {"seq", r.Seq}, {"batch", r.Batch}, {"micro-batch", r.MicroBatch}, {"tp", r.TP}, {"pp", r.PP}, {"vp", r.VP}, {"ep", r.EP}, {"duplicate", r.Duplicate}, {"cp", r.cp()}} {
		must(f.value >= 1 && f.value <= most, "%s is %d: give 1 to %d", f.name, f.value, most)
	}
	must(h.Kernels != "h200" || r.Precision == "bf16" || r.Precision == "fp8", "precision %s on %s, which has no MX units: use fp8", r.Precision, r.GPU)
	must((r.Routing == Natural) == (r.Imbalance > 0) && (r.Imbalance == 0 || r.Imbalance >= 1 && r.Imbalance <= most), "imbalance is %g with routing %s: give 1 or more with routing %s, and none otherwise", r.Imbalance, r.Routing, Natural)
	must(r.Layers >= 0 && r.Layers <= 1000, "layers is %d: give 1 to 1000", r.Layers)
	must(r.HostMicros >= 0 && r.HostMicros <= 1e6, "host-us is %g: give a positive number of microseconds", r.HostMicros)
	must(r.Wire == "" || r.Wire == "bf16" || r.Wire == "mxfp8", "wire is %q: use bf16 or mxfp8", r.Wire)
	must(r.Hidden == nil || *r.Hidden >= 0 && *r.Hidden <= 1, "the hidden share must be 0 to 1")
	must(r.NIC >= 0 && !math.IsInf(r.NIC, 0) && !math.IsNaN(r.NIC) && r.NVLinkDomain >= 0 && r.NVLinkDomain <= most, "nic is %g and nvlink-domain %d: give positive numbers", r.NIC, r.NVLinkDomain)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if why := r.indivisible(m); why != "" {
		return r.suggest(m, why)
	}
	if r.Schedule == "" || r.PP == 1 {
		return nil
	}
	if _, err = pipeline.New(r.Schedule, r.PP, r.VP, int(r.microBatches())); err != nil {
		return fmt.Errorf("--pp-schedule with --pp %d, --vp %d and %.0f micro-batches per step: %w", r.PP, r.VP, r.microBatches(), err)
	}
	return nil
}

// indivisible describes what the layout does not divide evenly. It is empty if there is nothing.
func (r Run) indivisible(m Model) string {
	switch {
	case r.GPUs%(r.TP*r.PP*r.cp()) != 0:
		return fmt.Sprintf("tp %d times pp %d times cp %d does not divide %d GPUs", r.TP, r.PP, r.cp(), r.GPUs)
	case r.GPUs%(r.EP*r.PP) != 0:
		return fmt.Sprintf("ep %d times pp %d does not divide %d GPUs", r.EP, r.PP, r.GPUs)
	case m.Experts%r.EP != 0 && m.mainMoE() > 0:
		return fmt.Sprintf("ep %d does not divide %d experts", r.EP, m.Experts)
	case r.Batch%(r.dp()*r.MicroBatch) != 0:
		return fmt.Sprintf("%d data-parallel replicas of micro-batch %d do not divide a batch of %d", r.dp(), r.MicroBatch, r.Batch)
	case r.PP*r.VP > m.Layers+2:
		return fmt.Sprintf("pp %d times vp %d is more than %d layers, the embedding and the head", r.PP, r.VP, m.Layers)
	case r.Duplicate > r.TP:
		return fmt.Sprintf("duplicate is %d but tp %d", r.Duplicate, r.TP)
	case m.Heads%r.TP != 0:
		return fmt.Sprintf("tp %d does not divide %d heads", r.TP, m.Heads)
	}
	return ""
}
