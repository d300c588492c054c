package moe

import (
	"fmt"
	"strings"
)

// Flavor is a named model configuration.
type Flavor struct {
	Name   string
	About  string
	Config Config
}

// Flavors lists the built-in models, small to large. The published ones follow DeepSeek's
// V2-Lite, V2 and V3 shapes under the names that TorchTitan gives them.
func Flavors() []Flavor {
	return []Flavor{
		{"debug", "6 M parameters, byte vocabulary: trains in a minute or two on two cores", debug()},
		{"small", "107 M parameters, 32 experts: the training benchmark", small()},
		{"16B", "DeepSeek-V2-Lite's shape", deepseek16B()},
		{"236B", "DeepSeek-V2's shape", deepseek236B()},
		{"671B", "DeepSeek-V3's shape", deepseek671B()},
	}
}

// FlavorByName returns the configuration of a built-in model.
func FlavorByName(name string) (Config, error) {
	var names []string
	for _, f := range Flavors() {
		if f.Name == name {
			return f.Config, nil
		}
		names = append(names, f.Name)
	}
	return Config{}, fmt.Errorf("unknown flavor %q: use one of %s", name, strings.Join(names, ", "))
}

// base returns the settings that all flavors share.
func base() Config {
	return Config{
		Groups: 1, TopKGroups: 1,
		ScoreFunc: Sigmoid, NormTopK: true, RouteScale: 1,
		BiasSpeed: 1e-3, MTPWeight: 0.3,
		NormEps: 1e-6, RopeTheta: 10000, MaxPositions: 16384,
	}
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

func small() Config {
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 8192, 512, 8, 1, 1280
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 8, 128, 32, 32, 64
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 32, 4, 256, 1
	c.MaxPositions = 4096
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
