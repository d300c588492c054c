package reference

import (
	"maps"
	"math"
	"strings"
	"testing"
)

const lastIndexer = "model.layers.2.self_attn.indexer."

// indexLoss returns the loss of the last indexer, with one element of a parameter moved. The model
// and the choice stay.
func (g *golden) indexLoss(warmup bool, param string, at int, by float64) float64 {
	values := maps.Clone(g.values)
	g.edit = func(c *Call) {
		c.Given, c.Warmup, c.Backward = known(values), warmup, false
		c.Param = func(name string) (Tensor, error) {
			x, err := g.weight(name)
			if name == param {
				x.Data[at] += by
			}
			return x, err
		}
	}
	for _, module := range []string{"wq_b", "wk", "k_norm.handover", "k_norm", "weights_proj", "loss"} {
		maps.Copy(values, g.run(g.module(lastIndexer+module)))
	}
	return values[lastIndexer+"loss"].Data[0]
}

// The gradients of an indexer's loss are those of finite differences, in both stages. They reach no
// weight of the model.
func TestIndexLossGradients(t *testing.T) {
	for _, family := range []string{"deepseek_v32_tiny", "glm_moe_dsa_tiny"} {
		g := openGolden(t, family)
		for i := range g.batch.Labels {
			if i%5 == 0 {
				g.batch.Labels[i] = -100
			}
		}
		for _, warmup := range []bool{false, true} {
			g.edit = func(c *Call) { c.Losses, c.Warmup = map[string]float64{lastIndexer + "loss": 1}, warmup }
			all := g.run(g.module("model"))
			for _, name := range g.module("model").Params {
				gradient := all[name].Data
				at := largest(gradient, 1)[0]
				if !strings.HasPrefix(name, lastIndexer) {
					if gradient[at] != 0 {
						t.Errorf("%s has a gradient", name)
					}
					continue
				}
				g.values = all
				const step = 1e-6
				want := (g.indexLoss(warmup, name, at, step) - g.indexLoss(warmup, name, at, -step)) / (2 * step)
				if !(math.Abs(gradient[at]-want) < 1e-6*want) {
					t.Errorf("%s: the gradient is %.9g, finite differences give %.9g", name, gradient[at], want)
				}
			}
		}
	}
}
