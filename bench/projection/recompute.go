package projection

// What the backward pass computes again: nothing, everything, or named modules.

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/moe"
)

// modules are the parts of a layer that can be recomputed alone, by Megatron-Core's names, with
// what each spares: the share of a layer's activations, roughly.
var modules = map[string]float64{
	"mla_up_proj": 0.3,  // queries, keys and values of all heads from MLA's compressed ones
	"moe_act":     0.2,  // the experts' SwiGLU
	"mlp":         0.02, // the feed-forward part of dense layers
	"layernorm":   0.05, // both norms
	"core_attn":   0.1,  // scores and values
}

// Recomputes lists the recompute policies that are not lists of modules.
func Recomputes() []string { return []string{"none", "selective", "full"} }

// recomputed returns the modules of a policy, or an error that lists the known ones. Selective
// recomputation is that of MLA's expansion, of norms and of activations.
func recomputed(policy string) ([]string, error) {
	switch policy {
	case "none", "full":
		return nil, nil
	case "selective":
		return []string{"mla_up_proj", "moe_act", "layernorm"}, nil
	}
	list := strings.Split(policy, "+")
	for _, name := range list {
		if _, ok := modules[name]; !ok {
			known := make([]string, 0, len(modules))
			for m := range modules {
				known = append(known, m)
			}
			slices.Sort(known)
			return nil, fmt.Errorf("recompute %q is unknown: use one of %s, or modules joined by +: %s", policy, strings.Join(Recomputes(), ", "), strings.Join(known, ", "))
		}
	}
	return list, nil
}

// full is 1 if everything is recomputed, and 0 otherwise.
func (e *estimator) full() float64 {
	if e.run.Recompute == "full" {
		return 1
	}
	return 0
}

// again is 1 if a module is recomputed, and 0 otherwise.
func (e *estimator) again(module string) float64 {
	if e.run.Recompute == "full" || slices.Contains(e.recomputed, module) {
		return 1
	}
	return 0
}

// repeats reports whether recomputation runs a layer's forward product again.
func (e *estimator) repeats(l moe.LinearLayer) bool {
	switch {
	case l.Part == moe.Head:
		return false
	case e.run.Recompute == "full":
		return true
	case l.Part == moe.Dense:
		return e.again("mlp") > 0
	}
	return l.Expands && e.again("mla_up_proj") > 0
}

// keptShare returns the share of a layer's activations that is saved.
func keptShare(policy string) float64 {
	if policy == "full" {
		return 0.06
	}
	list, _ := recomputed(policy) // Check has refused others
	kept := 1.0
	for _, name := range list {
		kept -= modules[name]
	}
	return kept
}
