package moe

import (
	"fmt"
	"math"
	"testing"

	"spmoe/tensor"
)

// The published numbers: DeepSeek's papers and TorchTitan's tables, to the digits given there.
func TestPublishedCounts(t *testing.T) {
	for _, c := range []struct {
		flavor                   string
		total, active, tolerance float64 // in 1e9 parameters
		flops4K, flops8K         float64 // in 1e9 a token; 0: none published
	}{
		{"16B", 15.706, 2.66, 0.005, 18.1, 21.5},
		{"236B", 235.74, 21.4, 0.05, 185.5, 245.9},
		{"671B", 671.026, 37.55, 0.005, 281.2, 342.6},
	} {
		t.Run(c.flavor, func(t *testing.T) {
			cfg, err := FlavorByName(c.flavor)
			if err != nil {
				t.Fatal(err)
			}
			n := cfg.Count()
			if got := float64(n.Total) / 1e9; math.Abs(got-c.total) > c.tolerance {
				t.Errorf("%.4f B parameters, published %g", got, c.total)
			}
			if got := float64(n.Active) / 1e9; math.Abs(got-c.active) > c.tolerance {
				t.Errorf("%.4f B active parameters, published %g", got, c.active)
			}
			for seq, want := range map[int]float64{4096: c.flops4K, 8192: c.flops8K} {
				if got := cfg.FLOPsPerToken(seq) / 1e9; math.Abs(got-want) > 0.01*want {
					t.Errorf("%.2f GFLOP a token at %d, published %g", got, seq, want)
				}
			}
		})
	}
}

func TestDebugFlavor(t *testing.T) {
	cfg, err := FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	if n := cfg.Count().Total; n < 5_500_000 || n > 6_500_000 || cfg.Experts != 16 {
		t.Errorf("%d parameters and %d experts, want about 6 M and 16", n, cfg.Experts)
	}
}

// The sizes of the flavors between debug and the published ones, added up by hand, and that of
// Qwen3-30B-A3B's files.
func TestMidsizeCounts(t *testing.T) {
	for name, want := range map[string]Counts{
		"small": {Total: 106_948_096, Active: 29_877_760, Routed: 88_080_384},
		"500M":  {Total: 500_044_800, Active: 123_737_088, Routed: 415_236_096},
		"3B":    {Total: 2_725_078_080, Active: 365_782_080, Routed: 2_516_582_400},

		"30B-A3B": {Total: 30_532_122_624, Active: 3_353_032_704, Routed: 28_991_029_248},
	} {
		cfg, err := FlavorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := cfg.Count(); n.Total != want.Total || n.Active != want.Active || n.Routed != want.Routed {
			t.Errorf("%s: %d parameters, %d active, %d in routed experts, want %d, %d and %d",
				name, n.Total, n.Active, n.Routed, want.Total, want.Active, want.Routed)
		}
	}
}

// No forward or dgrad product of wide sums over fewer than 256 terms, and its run has two tokens
// per parameter.
func TestWideFlavor(t *testing.T) {
	f := mustFlavor(t, "wide")
	for _, l := range f.Config.Linears() {
		if l.Part != Router && min(l.In, l.Out) < 256 {
			t.Errorf("%s is %d x %d", l.Name, l.Out, l.In)
		}
	}
	if n := f.Config.Count(); n.Total != 2_510_592 || n.Active != 1_330_944 || n.Routed != 1_572_864 {
		t.Errorf("%d parameters, %d active, %d in routed experts", n.Total, n.Active, n.Routed)
	}
	if tokens := int64(f.Training.Steps * f.Training.Batch * f.Training.Seq); tokens < 2*f.Config.Count().Total {
		t.Errorf("%d tokens", tokens)
	}
}

// The formulas against the tensors of models that were really built.
func TestCountOfBuiltModels(t *testing.T) {
	for name, cfg := range withSharedKeys(map[string]Config{
		"plain":      tiny(),
		"q_rank":     with(tiny(), func(c *Config) { c.QRank = 10 }),
		"mtp":        with(tiny(), func(c *Config) { c.MTPLayers = 1 }),
		"mtp q_rank": with(tiny(), func(c *Config) { c.MTPLayers, c.QRank = 1, 10 }),
		"all moe":    with(tiny(), func(c *Config) { c.DenseLayers, c.DenseInter = 0, 0 }),
		"deeper":     with(tiny(), func(c *Config) { c.Layers, c.DenseLayers = 5, 2 }),
		"two shared": with(tiny(), func(c *Config) { c.SharedExperts = 2 }),
		"no shared":  with(tiny(), func(c *Config) { c.SharedExperts = 0 }),
		"only dense": with(tiny(), func(c *Config) { c.DenseLayers = 2 }),
	}) {
		for _, ranks := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				replicated, local, mtp := make([]int64, ranks), make([]int64, ranks), make([]int64, ranks)
				onRanks(t, ranks, cfg, tensor.FP32, 8, func(m *member) error {
					r := m.comm.Rank()
					for _, g := range m.model.Groups {
						for _, p := range g.Params {
							if g.Experts {
								local[r] += int64(p.Len())
							} else {
								replicated[r] += int64(p.Len())
							}
							var layer int
							if n, _ := fmt.Sscanf(p.Name, "model.layers.%d.", &layer); n == 1 && layer == cfg.Layers && (g.Experts || r == 0) {
								mtp[r] += int64(p.Len())
							}
						}
					}
					return nil
				})
				want := cfg.Count()
				for r, n := range replicated {
					if n != want.Replicated {
						t.Errorf("rank %d holds %d replicated parameters, counted %d", r, n, want.Replicated)
					}
					if local[r] != want.Routed/int64(ranks) {
						t.Errorf("rank %d holds %d expert parameters, counted %d", r, local[r], want.Routed/int64(ranks))
					}
				}
				if got := replicated[0] + total(local); got != want.Total {
					t.Errorf("%d parameters in all, counted %d", got, want.Total)
				}
				if got := total(mtp); got != want.Ahead {
					t.Errorf("%d parameters of the MTP module, counted %d", got, want.Ahead)
				}
				if got := int64(cfg.MoELayers()*cfg.Experts) * want.PerExpert; got != want.Routed {
					t.Errorf("%d parameters of routed experts, counted %d", got, want.Routed)
				}
			})
		}
	}
}

func total(counts []int64) int64 {
	var n int64
	for _, c := range counts {
		n += c
	}
	return n
}

func TestFlavorByNameUnknown(t *testing.T) {
	_, err := FlavorByName("17B")
	contains(t, err, `"17B"`, "debug", "16B", "671B")
}
