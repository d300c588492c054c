package reference

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// richBatch has documents, padding, positions of their own and tokens without target.
func (g *golden) richBatch() {
	b := *g.batch
	n := len(b.IDs)
	b.Documents, b.Mask, b.Positions = make([]int32, n), make([]int32, n), make([]int32, n)
	b.Labels = slices.Clone(b.Labels)
	for i := range n {
		at := i % b.Seq
		b.Documents[i] = int32(at / 24) // as many windows as without documents
		b.Positions[i] = int32(at * (1 + at/10))
		if b.Mask[i] = 1; at < 3 && i >= b.Seq {
			b.Mask[i] = 0
			b.Labels[i] = -100
		}
	}
	if g.batch = &b; g.config.Streams > 0 { // entries begin again at documents
		g.values = g.run(g.module("model"))
	}
	for name, x := range g.values { // gradients that do not vanish anywhere
		rng := rand.New(rand.NewPCG(1, uint64(len(name))))
		for i := range x.Data {
			if !strings.HasSuffix(name, ".indices") {
				x.Data[i] += 0.1 * rng.NormFloat64()
			}
		}
	}
}

// runWith runs a module with a mistake.
func (g *golden) runWith(m *Module, mistake string) map[string]Tensor {
	g.edit = func(c *Call) {
		c.Mistake = mistake
		if m.Kind == Core { // which a loss may reach
			c.Losses = map[string]float64{layerPath(m.Layer) + ".self_attn.indexer.loss": 1}
		}
		if given := c.Given; m.Kind == Router { // the gradient of its weights alone
			c.Given = func(name string) (x Tensor, ok bool) {
				if strings.HasSuffix(name, "logits.grad") {
					return x, false
				}
				return given(name)
			}
		}
	}
	return g.run(m)
}

// asks reports whether a formula asked for a mistake.
func (t *Trace) asks(mistake string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(t.first)), func(name string) bool {
		begin, all := strings.CutSuffix(name, "*")
		return mistake == name || all && strings.HasPrefix(mistake, begin)
	})
}

// change is the largest distance of a pass with a mistake from right.
func (g *golden) change(m *Module, mistake string, right map[string]Tensor) float64 {
	worst := 0.0
	for name, x := range g.runWith(m, mistake) {
		worst = max(worst, distance(finite(x.Data), finite(right[name].Data)))
	}
	return worst
}

// finite returns values with 0 for those of keys that no token sees, -Inf.
func finite(values []float64) []float64 {
	y := slices.Clone(values)
	for i, v := range y {
		if math.IsInf(v, -1) {
			y[i] = 0
		}
	}
	return y
}

func TestEveryMistakeChangesItsKinds(t *testing.T) {
	seen, models := map[string]map[Kind]float64{}, []*golden{}
	for _, family := range families {
		g := openGolden(t, family)
		g.richBatch()
		models = append(models, g)
	}
	v3, glm, qwen := models[1].config, models[2].config, models[3].config
	qwen.Eps, qwen.Window, v3.MTPLayers = 1e-5, 9, 1
	models[0].config.Rope.Amplitude, models[len(models)-1].config.CompressRope.Amplitude = 1.2, 1.2
	models[2].batch.Reduction = "sequence"
	for name, x := range models[2].values { // large enough to be clamped
		for i := range x.Data {
			if strings.Contains(name, ".mlp.") && !strings.HasSuffix(name, ".indices") {
				x.Data[i] *= 20
			}
		}
	}
	glm.Interleaved = true
	models[5].values["model.layers.1.self_attn.output.2"] = Tensor{Data: make([]float64, 2*44)} // a choice of its own
	repeated := models[len(models)-1].values["model.layers.1.mlp.gate.indices"].Data
	repeated[0] = repeated[1]
	models[1].values["model.layers.3.shared_head.head.output"] = models[1].values["lm_head.output"]
	for _, port := range []string{"input", "input.1"} {
		x := models[4].values["model.layers.1.self_attn.indexer."+port]
		models[4].values["model.layers.1.self_attn.indexer.grad_"+port] = x
	}
	for _, g := range models {
		modules := g.config.Modules()
		slices.SortStableFunc(modules, func(a, b *Module) int { return len(a.Children) - len(b.Children) })
		for _, m := range modules {
			if m.Layer == 0 && m.Kind != IndexLoss || m.Layer == 2 || m.Kind == Block || m.Kind == Model || !g.has(m.Inputs) {
				continue
			}
			var right map[string]Tensor
			trace := &Trace{module: m, before: map[int]state{}, first: map[string]int{}}
			for _, mistake := range Mistakes() {
				changes := seen[mistake.Name]
				of := slices.DeleteFunc(slices.Clone(m.Children), func(c *Module) bool { return !slices.Contains(mistake.Kinds, c.Kind) })
				if len(of) > 0 && !slices.ContainsFunc(of, func(c *Module) bool { return changes[c.Kind] >= 1e-7 }) {
					continue // what has not changed a part does not change the whole
				}
				if slices.Contains(mistake.Kinds, m.Kind) && seen[mistake.Name][m.Kind] < 1e-7 {
					if right == nil {
						g.trace = trace
						right = g.runWith(m, "")
						g.trace = nil
					}
					if !trace.asks(mistake.Name) {
						continue
					}
					if seen[mistake.Name] == nil {
						seen[mistake.Name] = map[Kind]float64{Block: 1}
					}
					seen[mistake.Name][m.Kind] = max(seen[mistake.Name][m.Kind], g.change(m, mistake.Name, right))
				}
			}
		}
	}
	for _, mistake := range Mistakes() {
		for _, kind := range mistake.Kinds {
			if kind == Block || kind == Head && (mistake.Name == "norm_all_heads" || mistake.Name == "labels_as_main") ||
				(kind == Residual || kind == Mix) && strings.HasSuffix(mistake.Name, "detached") || // a sum alone has no backward pass
				kind == Attention && strings.HasSuffix(mistake.Name, "attached") || // which has no indexer's loss
				kind == Indexer && slices.Contains(mistake.Kinds, Pool) || kind == Indexer && strings.HasPrefix(mistake.Name, "entries") { // of entries
				continue // no norm of heads, and no labels of further tokens
			}
			if seen[mistake.Name][kind] < 1e-7 {
				t.Errorf("%s changes %s by %.2g only", mistake.Name, kind, seen[mistake.Name][kind])
			}
		}
	}
}

// A mistake of two constants has the second one behind a comma.
func TestSecondConstant(t *testing.T) {
	g := openGolden(t, "qwen3_moe_tiny")
	m := g.module("model.layers.1.self_attn.core")
	right := g.runWith(m, "")
	base, both, half := g.change(m, "rope_base_10000", right), g.change(m, "rope_positions_other:1,10000", right), g.change(m, "rope_positions_other:0.5,10000", right)
	if base == 0 || both != base || half == base || half == g.change(m, "rope_positions_other:0.5", right) {
		t.Errorf("changes by %g, %g and %g", base, both, half)
	}
}

// has reports whether there are values for the ports.
func (g *golden) has(ports []Port) bool {
	return !slices.ContainsFunc(ports, func(p Port) bool { return g.values[p.Name].Data == nil })
}
