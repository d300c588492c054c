package projection

// What the backward pass computes again: nothing, everything, or named modules.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/moe"
)

// modules are the parts of a layer that can be recomputed alone, by Megatron-Core's names, with
// what each spares: the share of a layer's activations, roughly.
var modules = map[string]float64{
	"mla_up_proj":   0.3,  // queries, keys and values of all heads from MLA's compressed ones
	"moe_act":       0.2,  // the experts' SwiGLU
	"mlp":           0.02, // the feed-forward part of dense layers
	"layernorm":     0.05, // both norms
	"core_attn":     0.1,  // scores and values
	"moe":           0.45, // routed and shared experts with their exchange
	"shared_expert": 0.05,
	"mhc":           0, // maps between residual streams
}

// Modules lists the parts of a layer that can be recomputed alone.
func Modules() []string { return slices.Sorted(maps.Keys(modules)) }

// Recomputes lists the recompute policies that are not lists of modules.
func Recomputes() []string { return []string{"none", "selective", "titan_op", "full"} }

// recomputed returns the modules of a policy, or an error that lists the known ones. Selective
// recomputation is that of MLA's expansion, of norms and of activations.
func recomputed(policy string) ([]string, error) {
	switch policy {
	case "none", "full", "titan_op":
		return nil, nil
	case "selective":
		return []string{"mla_up_proj", "moe_act", "layernorm"}, nil
	}
	list := strings.Split(policy, "+")
	for _, name := range list {
		if _, ok := modules[name]; !ok {
			return nil, fmt.Errorf("recompute %q is unknown: use one of %s, or modules joined by +: %s", policy, strings.Join(Recomputes(), ", "), strings.Join(Modules(), ", "))
		}
	}
	return list, nil
}

// titan_op is TorchTitan's selective checkpointing of operations: it saves the results of attention
// and of every second product, but no grouped one, and repeats the rest. Source: torchtitan
// 1a36996, activation_checkpoint.py.
const (
	titanOp = "titan_op"
	// share of the products' FLOPs that it repeats: of q, kv_a, kv_b, o and the three of a
	// feed-forward network every second
	titanRepeats = 0.35
)

// full is 1 if everything is recomputed, all but saved results, and 0 otherwise.
func (e *estimator) full() float64 {
	if e.run.Recompute == "full" || e.run.Recompute == titanOp {
		return 1
	}
	return 0
}

// again is 1 if a module is recomputed, and 0 otherwise.
func (e *estimator) again(module string) float64 {
	if e.full() > 0 && !(e.run.Recompute == titanOp && module == "core_attn") || slices.Contains(e.recomputed, module) {
		return 1
	}
	return 0
}

// repeats returns the share of a layer's forward product that recomputation runs again.
func (e *estimator) repeats(l moe.LinearLayer) float64 {
	switch {
	case l.Part == moe.Head:
		return 0
	case e.run.Recompute == titanOp && l.Part != moe.Routed:
		return titanRepeats
	case e.full() > 0:
		return 1
	case l.Part == moe.Dense:
		return e.again("mlp")
	case l.Expands:
		return e.again("mla_up_proj")
	case l.Part == moe.Shared:
		return e.again("shared_expert")
	case l.Part == moe.Routed:
		return e.again("moe")
	}
	return 0
}

// keptShare returns the share of a layer's activations that is saved.
func keptShare(policy string) float64 {
	switch policy {
	case "full":
		return 0.06
	case titanOp:
		return 0.3
	}
	list, _ := recomputed(policy) // Check has refused others
	kept := 1.0
	for _, name := range list {
		kept -= modules[name]
	}
	return max(kept, 0.06)
}
