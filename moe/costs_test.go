package moe

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spmoe/tensor"
)

// partOf says from its name to which part a parameter belongs.
func partOf(name string) Part {
	for _, p := range []struct {
		has  string
		part Part
	}{
		{"norm.", Norms}, {".bias", Norms}, {".weights_proj.", Norms}, {"embed_tokens.", Embedding}, {"lm_head.", Head}, {"eh_proj.", Joint}, {".self_attn.", Projections},
		{".mlp.gate.", Router}, {".shared_experts.", Shared}, {".experts.", Routed}, {".mlp.", Dense},
	} {
		if strings.Contains(name, p.has) {
			return p.part
		}
	}
	return ""
}

// Every part's parameters against the tensors of models that were really built.
func TestModulesOfBuiltModels(t *testing.T) {
	for name, cfg := range withSharedKeys(map[string]Config{
		"plain":      tiny(),
		"mtp q_rank": with(tiny(), func(c *Config) { c.MTPLayers, c.QRank = 1, 10 }),
		"no shared":  with(tiny(), func(c *Config) { c.SharedExperts = 0 }),
		"indexers":   with(tiny(), func(c *Config) { choosing(c); c.MTPLayers = 1 }),
		"only dense": with(tiny(), func(c *Config) { c.DenseLayers = 2 }),
	}) {
		t.Run(name, func(t *testing.T) {
			built := map[string]int64{}
			onRanks(t, 1, cfg, tensor.FP32, 8, func(m *member) error {
				for _, p := range m.model.Params() {
					var layer int
					n, _ := fmt.Sscanf(p.Name, "model.layers.%d.", &layer)
					built[fmt.Sprint(partOf(p.Name), n == 1 && layer == cfg.Layers)] += int64(p.Len())
				}
				return nil
			})
			for _, m := range cfg.Modules(8) {
				key := fmt.Sprint(m.Part, m.Ahead)
				if built[key] != m.Params {
					t.Errorf("%s, MTP %t: built are %d parameters, counted %d", m.Part, m.Ahead, built[key], m.Params)
				}
				delete(built, key)
			}
			if len(built) > 0 {
				t.Errorf("no module counts %v", built)
			}
		})
	}
}

// modules sums a quantity over the parts of a flavor, by part and whether it is of the MTP module.
func modules(t *testing.T, flavor string, mtp, seq int, value func(Module) float64) map[Part]float64 {
	t.Helper()
	cfg, err := FlavorByName(flavor)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MTPLayers = mtp
	sums := map[Part]float64{}
	for _, m := range cfg.Modules(seq) {
		if m.Ahead {
			sums["MTP"] += value(m)
		} else {
			sums[m.Part] += value(m)
		}
	}
	return sums
}

func approx(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %g, published %g", what, got, want)
	}
}

// The 671B model's parts as they are published: parameters a layer, forward GFLOP a token, and the
// cache of the papers.
func TestPublishedModules(t *testing.T) {
	params := modules(t, "671B", 0, 4096, func(m Module) float64 { return float64(m.Params) / 1e6 })
	approx(t, "M parameters of a layer's attention", params[Projections]/61, 187.1, 0.05)
	approx(t, "M parameters of a dense FFN", params[Dense]/3, 396.4, 0.05)
	approx(t, "M parameters of an expert", params[Routed]/58/256, 44.04, 0.005)
	approx(t, "M parameters of a shared expert", params[Shared]/58, 44.04, 0.005)
	approx(t, "M parameters of a router", params[Router]/58, 1.84, 0.005)
	approx(t, "M parameters of the embedding", params[Embedding], 926.7, 0.05)
	approx(t, "M parameters of the head", params[Head], 926.7, 0.05)

	forward := modules(t, "671B", 1, 4096, func(m Module) float64 { return m.FLOPs.Forward / 1e9 })
	approx(t, "forward GFLOP of the experts", forward[Routed], 40.87, 0.01)
	approx(t, "forward GFLOP of the other products", forward[Projections]+forward[Dense]+forward[Router]+forward[Shared]+forward[Head], 32.38, 0.01)
	approx(t, "forward GFLOP of attention, all of it", forward[Scores], 2*10.23, 0.02)
	approx(t, "forward GFLOP of the MTP module beside attention", forward["MTP"]-forward[Scores]/61, 3.23, 0.01)

	// V3.2 is V3 with indexers: queries, key and its norm, weights of heads.
	indexer := 1536*64*128 + 7168*128 + 2*128 + 7168*64
	if got, v3 := mustFlavor(t, "deepseek-v3.2").Config.Count().Total, mustFlavor(t, "671B").Config.Count().Total; got != v3+61*int64(indexer) {
		t.Errorf("V3.2 has %d parameters, V3 %d: want %d per layer more", got, v3, indexer)
	}
	glm := mustFlavor(t, "glm-5").Config.Count()
	approx(t, "B parameters of GLM-5", float64(glm.Total)/1e9, 744, 1)
	approx(t, "B active parameters of GLM-5", float64(glm.Active)/1e9, 40, 2)

	cfg, err := FlavorByName("671B")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.KVCache(); got != 61*128*320 {
		t.Errorf("%d elements of a token are cached", got)
	}
}

// The parts' FLOPs against 6 a parameter and 6·layers·heads·(key + value dimension)·seq, with and
// without the MTP module, which neither FLOPsPerToken nor Active counts.
func TestModuleFLOPs(t *testing.T) {
	for _, f := range Flavors() {
		for mtp := range 2 {
			cfg := f.Config
			cfg.MTPLayers = mtp
			n := cfg.Count()
			attention, forwardOnly := 6*float64(cfg.Layers*cfg.Heads*(cfg.KeyDim()+cfg.ValueDim)*777), 0.0
			for i := range cfg.Layers {
				if cfg.hasIndexer(i) {
					attention += 6 * float64(cfg.IndexHeads*cfg.IndexDim*777)
				}
			}
			if kinds := strings.Split(cfg.Attention, ", "); cfg.Attention != "" { // the last two repeat
				attention = 0
				for i := range cfg.Layers {
					if repeated := len(kinds) - 2; i > repeated {
						i = repeated + (i-repeated)%2
					}
					entries := map[string]int{"csa": min(cfg.IndexTopK, 777/max(cfg.CSARate, 1)), "hca": 777 / max(cfg.HCARate, 1)}[kinds[i]]
					attention += 6 * float64(cfg.Heads*2*cfg.KeyDim()*(min(cfg.Window, 777)+entries))
					if kinds[i] == "csa" {
						forwardOnly += 2 * float64(cfg.IndexHeads*cfg.IndexDim*(777/cfg.CSARate))
					}
				}
				attention += forwardOnly
			}
			if got, want := cfg.FLOPsPerToken(777), 6*float64(n.Active-int64(cfg.Vocab*cfg.Dim))+attention; got != want {
				t.Errorf("%s: %v FLOPs per token, want %v", f.Name, got, want)
			}
			if n.Total != n.Replicated+n.Routed || (n.Ahead > 0) != (mtp > 0) {
				t.Errorf("%s: %+v", f.Name, n)
			}
			for _, m := range cfg.Modules(777) {
				once := forwardOnly
				if m.Ahead { // its window has no entries
					once = 0
				}
				if m.Part == Scores && m.FLOPs.Dgrad != 2*(m.FLOPs.Forward-once) || m.Part != Scores && m.FLOPs.Total() != 3*m.FLOPs.Forward {
					t.Errorf("%s, %s: %+v", f.Name, m.Part, m.FLOPs)
				}
			}
		}
	}
}
