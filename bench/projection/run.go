package projection

// What to project: a model, a GPU, a parallel layout, and what the software does.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Run is one training recipe on one cluster.
type Run struct {
	Model      string `json:"model"`
	GPU        string `json:"gpu"`
	GPUs       int    `json:"gpus"`
	Precision  string `json:"precision"`   // see [Precisions]
	Seq        int    `json:"seq"`         // tokens per sequence
	Batch      int    `json:"batch"`       // sequences per optimizer step, all GPUs together
	MicroBatch int    `json:"micro_batch"` // sequences per pass
	MTP        bool   `json:"mtp,omitempty"`
	TP         int    `json:"tp"`
	PP         int    `json:"pp"`
	VP         int    `json:"vp"` // pipeline stages per GPU
	EP         int    `json:"ep"`
	CP         int    `json:"cp,omitempty"`     // context-parallel degree; 0: 1
	Layers     int    `json:"layers,omitempty"` // transformer layers; 0: the model's
	Recompute  string `json:"recompute"`        // see [recomputes], or modules joined by +

	Software string  `json:"software"` // see [Softwares]
	Exchange string  `json:"exchange"` // standard or dedup: see [Exchanges]
	Overlap  bool    `json:"overlap,omitempty"`
	Graphs   string  `json:"graphs,omitempty"`  // CUDA graphs: see [Graphs]; empty: none
	FSDP     bool    `json:"fsdp,omitempty"`    // weights are sharded, if there is no pipeline
	Untuned  float64 `json:"untuned,omitempty"` // share of the framework's optimizations that are off
	// GPUs of a tensor-parallel group that each dispatch all tokens; 0: they share the tokens
	Duplicate     int     `json:"duplicate,omitempty"`
	Deterministic bool    `json:"deterministic,omitempty"`
	Routing       string  `json:"routing"`             // see [Routings]
	Imbalance     float64 `json:"imbalance,omitempty"` // fullest rank over the mean, for routing "natural"

	// What-if values; zero: those of the model and the hardware.
	TopK         int     `json:"top_k,omitempty"`
	GroupLimit   int     `json:"group_limit,omitempty"` // groups that a token may visit
	NIC          float64 `json:"nic_gbs,omitempty"`
	NVLinkDomain int     `json:"nvlink_domain,omitempty"`

	Hardware *Hardware `json:"-"` // replaces the named GPU
	Shape    *Model    `json:"-"` // replaces the named model
}

// Target is the recipe of the published 651 tokens/s: DeepSeek-V3 671B on 256 B200.
func Target() Run {
	for _, r := range Rows() {
		if r.ID == "nebius-bf16" {
			return r.Run
		}
	}
	panic("projection: data/rows.json lacks nebius-bf16")
}

// Precisions lists the precisions that can be projected: all linears, or only experts, in 8 bits.
func Precisions() []string { return []string{"bf16", "mxfp8-experts", "mxfp8", "fp8", "nvfp4"} }

// Softwares lists the kinds of software: Megatron-Core with TransformerEngine; plain PyTorch with
// fused permutation (AutoModel, PithTrain, TorchTitan with HybridEP or since April 2026); and
// TorchTitan before, with its own operators around the exchange and TorchAO's quantization.
func Softwares() []string { return []string{"megatron", "pytorch", "torchtitan"} }

// Exchanges lists the exchanges: an all-to-all of all copies, or one copy per rank and node
// (DeepEP, HybridEP).
func Exchanges() []string { return []string{"standard", "dedup"} }

// Graphs lists the kinds of CUDA graphs: none, over attention and router, or over a whole step.
func Graphs() []string { return []string{"none", "partial", "full"} }

// modules are the parts of a layer that can be recomputed alone, by Megatron-Core's names.
var modules = []string{"core_attn", "layernorm", "mhc", "mla_up_proj", "mlp", "moe", "moe_act", "shared_expert"}

// Modules lists the parts of a layer that can be recomputed alone.
func Modules() []string { return modules }

// recomputes lists the recompute policies that are not lists of modules. titan_op is TorchTitan's
// selective checkpointing of operations: it saves attention and every second product, but no
// grouped one.
func recomputes() []string { return []string{"none", "selective", "titan_op", "full"} }

// again reports what the backward pass computes again.
func (r Run) again(module string) bool {
	switch r.Recompute {
	case "full":
		return true
	case "titan_op":
		return module != "core_attn"
	case "selective":
		return module == "mla_up_proj" || module == "moe_act" || module == "layernorm"
	}
	return slices.Contains(strings.Split(r.Recompute, "+"), module)
}

// whole reports whether all of a layer is computed again, except for saved results.
func (r Run) whole() bool { return r.Recompute == "full" || r.Recompute == "titan_op" }

func (r Run) cp() int                { return max(1, r.CP) }
func (r Run) dp() int                { return max(1, r.GPUs/(r.TP*r.PP*r.cp())) }
func (r Run) repetitions() float64   { return float64(max(1, r.Duplicate)) }
func (r Run) microBatches() float64  { return float64(r.Batch) / float64(r.dp()*r.MicroBatch) }
func (r Run) tokensPerGPU() float64  { return float64(r.Batch) * float64(r.Seq) / float64(r.GPUs) }
func (r Run) tokensPerPass() float64 { return float64(r.MicroBatch*r.Seq) / float64(r.TP*r.cp()) }

func (r Run) model() (m Model, err error) {
	if r.Shape != nil {
		m = *r.Shape
	} else if m, err = ModelByName(r.Model, r.MTP); err != nil {
		return m, err
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

// hardware returns the GPU with the run's what-if values.
func (r Run) hardware() (h Hardware, err error) {
	if r.Hardware != nil {
		h = *r.Hardware
	} else if h, err = hardwareByName(r.GPU); err != nil {
		return h, err
	}
	if r.NIC > 0 {
		h.NIC = r.NIC
	}
	if r.NVLinkDomain > 0 {
		h.Domain = float64(r.NVLinkDomain)
	}
	return h, nil
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
	h, errHardware := r.hardware()
	errs = append(errs, err, errHardware, oneOf("precision", r.Precision, Precisions()), oneOf("routing", r.Routing, Routings()),
		oneOf("software", r.Software, Softwares()), oneOf("exchange", r.Exchange, Exchanges()))
	if r.Graphs != "" {
		errs = append(errs, oneOf("graphs", r.Graphs, Graphs()))
	}
	if !slices.Contains(recomputes(), r.Recompute) {
		for _, name := range strings.Split(r.Recompute, "+") {
			must(slices.Contains(modules, name), "recompute %q is unknown: use one of %s, or modules joined by +: %s",
				r.Recompute, strings.Join(recomputes(), ", "), strings.Join(modules, ", "))
		}
	}
	const most = 1 << 20
	for _, f := range []struct {
		name  string
		value int
	}{
		{"gpus", r.GPUs}, {"seq", r.Seq}, {"batch", r.Batch}, {"micro-batch", r.MicroBatch}, {"tp", r.TP}, {"pp", r.PP},
		{"vp", r.VP}, {"ep", r.EP}, {"cp", r.cp()}, {"duplicate", int(r.repetitions())},
	} {
		must(f.value >= 1 && f.value <= most, "%s is %d: give 1 to %d", f.name, f.value, most)
	}
	must(h.FP8 != "fp8_hopper" || r.Precision == "bf16" || r.Precision == "fp8", "precision %s on %s, which has no MX units: use fp8", r.Precision, r.GPU)
	must((r.Routing == Natural) == (r.Imbalance > 0) && (r.Imbalance == 0 || r.Imbalance >= 1 && r.Imbalance <= most),
		"imbalance is %g with routing %s: give 1 or more with routing %s, and none otherwise", r.Imbalance, r.Routing, Natural)
	must(r.Layers >= 0 && r.Layers <= 1000, "layers is %d: give 1 to 1000", r.Layers)
	must(r.Untuned >= 0 && r.Untuned <= 1, "untuned is %g: give 0 to 1", r.Untuned)
	must(r.NIC >= 0 && !math.IsInf(r.NIC, 0) && !math.IsNaN(r.NIC) && r.NVLinkDomain >= 0 && r.NVLinkDomain <= most,
		"nic is %g and nvlink-domain %d: give positive numbers", r.NIC, r.NVLinkDomain)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.divides(m); err != nil {
		return err
	}
	if least := r.memory(m); least > h.Memory {
		return fmt.Errorf("weights, gradients and optimizer need %.0f GB per GPU without any activation, the %s has %.0f: give more GPUs or a larger --ep, --pp or --tp", least, h.Name, h.Memory)
	}
	return nil
}

// divides returns an error if the layout does not divide evenly.
func (r Run) divides(m Model) error {
	switch {
	case r.GPUs%(r.TP*r.PP*r.cp()) != 0:
		return fmt.Errorf("tp %d times pp %d times cp %d does not divide %d GPUs", r.TP, r.PP, r.cp(), r.GPUs)
	case r.GPUs%(r.EP*r.PP) != 0:
		return fmt.Errorf("ep %d times pp %d does not divide %d GPUs", r.EP, r.PP, r.GPUs)
	case m.Experts%r.EP != 0 && m.mainMoE() > 0:
		return fmt.Errorf("ep %d does not divide %d experts", r.EP, m.Experts)
	case r.Batch%(r.dp()*r.MicroBatch) != 0:
		return fmt.Errorf("%d data-parallel replicas of micro-batch %d do not divide a batch of %d", r.dp(), r.MicroBatch, r.Batch)
	case r.PP*r.VP > m.Layers+2:
		return fmt.Errorf("pp %d times vp %d is more than %d layers, the embedding and the head", r.PP, r.VP, m.Layers)
	case r.Duplicate > r.TP:
		return fmt.Errorf("duplicate is %d but tp %d", r.Duplicate, r.TP)
	case m.Heads%r.TP != 0:
		return fmt.Errorf("tp %d does not divide %d heads", r.TP, m.Heads)
	}
	return nil
}

// memory returns the least GB of a GPU: weights and gradients in BF16, both sharded by FSDP, and
// 12 bytes per parameter of optimizer state, sharded over the data-parallel group.
func (r Run) memory(m Model) float64 {
	dense, routed := m.parameters()
	stage := float64(r.PP)
	all := (dense + routed) / float64(r.GPUs)
	held := dense/(stage*float64(r.TP)) + routed/(stage*float64(r.EP))
	if r.FSDP && r.PP == 1 {
		held = all
	}
	return (4*held + 12*all) / 1e9
}

// oneOf returns an error that lists the known names unless given is one of them.
func oneOf(what, given string, known []string) error {
	if slices.Contains(known, given) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: use one of %s", what, given, strings.Join(known, ", "))
}
