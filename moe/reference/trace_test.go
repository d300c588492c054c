package reference

import (
	"maps"
	"math"
	"slices"
	"testing"
)

// A pass with a mistake that begins where the mistake is made has the bits of a whole pass.
// Mistakes of gradients change nothing.
func TestTrace(t *testing.T) {
	same := func(a, b Tensor) bool {
		return slices.Equal(a.Dims, b.Dims) && slices.EqualFunc(a.Data, b.Data, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
	}
	for _, c := range []struct {
		family, module string
		each           int // mistakes per tried one
		early, late    string
	}{
		{"deepseek_v32_tiny", "model.layers.1.self_attn", 2, "norm_sum", "rope_position_plus_1"},
		{"deepseek_v32_tiny", "model.layers.1.mlp", 1, "router_no_bias", "experts_shifted"},
		{"deepseek_v4_tiny", "model.layers.1", 10, "hyper_comb_sigmoid", "experts_shifted"},
	} {
		g := openGolden(t, c.family)
		m, names := g.module(c.module), []string{"experts_swapped:1,2", "norm_eps_1e-2", "scale_other:1.87"}
		for i, mistake := range Mistakes() {
			if slices.Contains(mistake.Kinds, m.Kind) && i%c.each == 0 {
				names = append(names, mistake.Name)
			}
		}
		call := Call{Batch: g.batch, Given: known(g.values), Param: g.weight, Tokens: span(0, 16), Sequences: []int{0}}
		trace := m.Trace(call)
		for _, name := range names {
			call.Mistake = name
			want, failed := m.Run(call)
			if got, err := trace.Run(name); (err == nil) != (failed == nil) || !maps.EqualFunc(got, want, same) {
				t.Errorf("%s of %s: %s differs: %v, %v", c.module, c.family, name, err, failed)
			}
		}
		early, late := trace.first[c.early], trace.first[c.late]
		if _, backward := trace.first["experts_input_detached"]; late <= early || backward {
			t.Errorf("%s: %s begins at place %d, %s at %d; gradients matter: %v", c.module, c.early, early, c.late, late, backward)
		}
	}
}
