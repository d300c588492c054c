package moe

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Flavor is a named model configuration, with the settings of a run that trains it.
type Flavor struct {
	Name     string
	About    string
	SliceOf  string // the flavor that it has layers and experts of; empty: it is a whole model
	Config   Config
	Training Training
}

// Flavors lists the built-in models: whole ones, small to large, and slices of the large ones. The
// published ones follow DeepSeek's V2-Lite, V2 and V3 shapes, and that of Qwen3-30B-A3B, under the
// names that TorchTitan gives them.
func Flavors() []Flavor {
	whole := func(name, about string, c Config, t Training) Flavor { return Flavor{name, about, "", c, t} }
	lite := whole("16B", "DeepSeek-V2-Lite's shape", deepseek16B(), train16B())
	v3 := whole("671B", "DeepSeek-V3's shape", deepseek671B(), train671B())
	return slices.Concat([]Flavor{
		whole("300K", "0.3 M parameters, 16 experts: 20 tokens per parameter in under a minute on two cores", shape300K(), train300K()),
		whole("1M", "1 M parameters, 16 experts: 20 tokens per parameter in minutes", shape1M(), train1M()),
		whole("3M", "2.7 M parameters, 16 experts: 20 tokens per parameter in half an hour", shape3M(), train3M()),
		whole("wide", "2.5 M parameters, 8 experts: sums of at least 256 terms in every product", shapeWide(), trainWide()),
		whole("debug", "6 M parameters, byte vocabulary: trains in a minute or two on two cores", debug(), trainDebug()),
		whole("small", "107 M parameters, 32 experts: the training benchmark", small(), trainSmall()),
		whole("500M", "500 M parameters, 64 experts: trains on 2 ranks in 24 GiB of memory", shape500M(), train500M()),
		whole("3B", "2.7 B parameters, 128 experts: trains on 8 ranks in 128 GiB of memory", shape3B(), train3B()),
		lite,
		whole("30B-A3B", "Qwen3-30B-A3B's shape: grouped-query attention", qwen30B(), train30B()),
		whole("236B", "DeepSeek-V2's shape", deepseek236B(), train236B()),
		v3,
	}, slices16B(lite), slices671B(v3))
}

// FindFlavor returns a built-in model by its name.
func FindFlavor(name string) (Flavor, error) {
	var names []string
	for _, f := range Flavors() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Flavor{}, fmt.Errorf("unknown flavor %q: use one of %s", name, strings.Join(names, ", "))
}

// FlavorByName returns the configuration of a built-in model.
func FlavorByName(name string) (Config, error) {
	f, err := FindFlavor(name)
	return f.Config, err
}

// FlavorLike returns the whole built-in model whose number of active parameters is nearest to that
// of a model, by ratio.
func FlavorLike(model Config) (nearest Flavor) {
	active := func(c Config) float64 { return math.Log(float64(max(c.Count().Active, 1))) }
	distance := math.Inf(1)
	for _, f := range Flavors() {
		if d := math.Abs(active(f.Config) - active(model)); f.SliceOf == "" && d < distance {
			nearest, distance = f, d
		}
	}
	return nearest
}

func debug() Config {
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 256, 256, 4, 1, 512
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 4, 64, 32, 32, 64
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 16, 4, 128, 1
	c.MaxPositions = 4096
	c.BiasSpeed = 5e-3 // a run has hundreds of steps, not hundreds of thousands
	return c
}

// studied returns the settings that 300K, 1M and 3M share: debug's, with heads of half the width.
// They are for studies of many runs. All have 16 experts, 4 of them per token, and widths in
// multiples of 32, so that blocks of 32 numbers fit.
func studied() Config {
	c := debug()
	c.NopeDim, c.RopeDim, c.ValueDim = 16, 16, 32
	return c
}

func shape300K() Config {
	c := studied()
	c.Dim, c.Layers, c.Heads, c.KVRank, c.DenseInter, c.ExpertInter = 64, 3, 2, 32, 128, 32
	return c
}

func shape1M() Config {
	c := studied()
	c.Dim, c.Layers, c.Heads, c.KVRank, c.DenseInter, c.ExpertInter = 128, 4, 4, 32, 256, 32
	return c
}

func shape3M() Config {
	c := studied()
	c.Dim, c.Layers, c.Heads, c.KVRank, c.DenseInter, c.ExpertInter = 192, 4, 6, 64, 512, 64
	return c
}

// shapeWide has as few parameters as MLA, a dense layer and a layer of 8 experts allow. No forward
// or dgrad product sums over fewer than 256 terms, which are two blocks of 128 or eight of 32.
func shapeWide() Config {
	c := debug()
	c.Layers, c.DenseInter, c.KVRank = 2, 256, 256
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 8, 2, 256, 0
	return c
}

func small() Config {
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 8192, 512, 8, 1, 1280
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 8, 128, 32, 32, 64
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 32, 4, 256, 1
	c.MaxPositions = 4096
	return c
}

// midsize returns the settings that 500M and 3B share. Both continue small's ratios towards
// DeepSeek-V3's:
//
//   - 64 and 75 of width per layer, with heads of 64 that add up to the width. small has 64,
//     DeepSeek-V2-Lite 76, V3 117.
//   - Experts a third to a quarter of the width, as V3's (0.29): fine-grained, so that many
//     combinations exist. The experts that a token visits, with the shared one, are as wide as a
//     dense layer: 2.3 times the width, V3 2.6 times.
//   - One of 11 to 16 experts per token: between small (1 of 8) and V3 (1 of 32). A pass of a
//     sequence per rank still gives each expert 190 to 510 rows, enough for fast products.
//   - Latent vectors of a quarter of the width, as small and V2-Lite.
//   - A route scale of 2.5, as V3: normalized weights of k alike experts shrink their sum by the
//     root of k, 2.4 to 2.8, next to the shared expert's output.
func midsize() Config {
	c := base()
	c.Vocab, c.NopeDim, c.RopeDim, c.ValueDim = 32768, 64, 32, 64
	c.DenseLayers, c.SharedExperts, c.RouteScale = 1, 1, 2.5
	return c
}

// shape500M fits 24 GiB on two ranks.
func shape500M() Config {
	c := midsize()
	c.Dim, c.Layers, c.Heads, c.KVRank, c.DenseInter = 768, 12, 12, 192, 1792
	c.Experts, c.TopK, c.ExpertInter = 64, 6, 256
	return c
}

// shape3B fits 128 GiB on eight ranks.
func shape3B() Config {
	c := midsize()
	c.Dim, c.Layers, c.Heads, c.KVRank, c.DenseInter = 1280, 17, 20, 320, 2880
	c.Experts, c.TopK, c.ExpertInter = 128, 8, 320
	return c
}

// published returns the settings that the three DeepSeek shapes share.
func published() Config {
	c := base()
	c.Vocab, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 102400, 512, 128, 64, 128
	c.SharedExperts, c.ScoreFunc, c.NormTopK = 2, Softmax, false
	c.YaRN = YaRN{Factor: 40, OriginalPositions: 4096, BetaFast: 32, BetaSlow: 1, MScale: 1, MScaleAllDim: 1}
	return c
}

func deepseek16B() Config {
	c := published()
	c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.Heads = 2048, 27, 1, 10944, 16
	c.Experts, c.TopK, c.ExpertInter = 64, 6, 1408
	c.YaRN.MScale, c.YaRN.MScaleAllDim = 0.707, 0.707
	return c
}

// qwen30B has a router without selection biases, balanced by its loss.
func qwen30B() Config {
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseInter, c.MaxPositions, c.RopeTheta = 151936, 2048, 48, 6144, 40960, 1e6
	c.Heads, c.KVHeads, c.RopeDim, c.ValueDim, c.QKNorm = 32, 4, 128, 128, true
	c.Experts, c.TopK, c.ExpertInter, c.ScoreFunc = 128, 8, 768, Softmax
	c.BiasSpeed, c.BalanceAlpha = 0, 1e-3
	return c
}

func deepseek236B() Config {
	c := published()
	c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.Heads, c.QRank = 5120, 60, 1, 12288, 128, 1536
	c.Experts, c.TopK, c.ExpertInter = 160, 6, 1536
	c.Groups, c.TopKGroups, c.RouteScale = 8, 3, 16
	return c
}

func deepseek671B() Config {
	c := published()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.Heads, c.QRank = 129280, 7168, 61, 3, 18432, 128, 1536
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 256, 8, 2048, 1
	c.Groups, c.TopKGroups, c.RouteScale = 8, 4, 2.5
	c.ScoreFunc, c.NormTopK = Sigmoid, true
	return c
}

// Bench flavors of real widths: DeepSeek's shapes with fewer layers and experts, so that their
// products can be timed, and trained, on one machine. A slice keeps every width of its model. Only
// the vocabulary of 671B-slice is cut, because embedding and head would fill the memory.

// slice returns a flavor with some layers and experts of another one, whose products have the same
// shapes. A token still visits the same number of experts if half of them suffice.
func slice(name, about string, of Flavor, layers, experts int) Flavor {
	c := of.Config
	c.Layers, c.DenseLayers, c.Experts = layers, 1, experts
	c.TopK = min(c.TopK, experts/2)
	c.Groups = min(c.Groups, experts/2)
	c.TopKGroups = min(c.TopKGroups, max(c.Groups/2, 1))
	return Flavor{name, about, of.Name, c, trainSlice(of.Training)}
}

// trainSlice returns settings for a few hundred steps with the rate of the whole model. The moments
// are BF16 in all slices, as 671B has them, because a slice has to fit a machine: 4 bytes per
// parameter less than with FP32. 16B-slice then fits 16 GiB on one or two ranks.
func trainSlice(of Training) Training {
	t := trainSmall()
	t.Steps, t.Seq, t.MicroBatch, t.EvalSequences = 300, 1024, 1, 16
	t.LR, t.Warmup, t.Moments, t.ChainPasses = of.LR, 30, MomentsBF16, true
	return t
}

func slices16B(of Flavor) []Flavor {
	return []Flavor{
		slice("16B-slice", "3 layers and 16 experts of 16B, with all its widths: fits 16 GiB", of, 3, 16),
		slice("16B-slice-128G", "10 layers of 16B with all their experts: fits 128 GiB", of, 10, 64),
	}
}

func slices671B(of Flavor) []Flavor {
	small := slice("671B-slice", "2 layers and 8 experts of 671B, with a vocabulary of 8,192: fits 20 GiB", of, 2, 8)
	small.Config.Vocab = 8192
	return []Flavor{
		small,
		slice("671B-slice-128G", "3 layers and 64 experts of 671B, with all its widths: fits 128 GiB", of, 3, 64),
	}
}
