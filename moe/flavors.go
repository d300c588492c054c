package moe

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"spmoe/internal/stricttoml"
)

// Flavor is a named model configuration, with the settings of a run that trains it.
type Flavor struct {
	Name     string   `toml:"name"`
	Like     string   `toml:"like"` // the flavor that it begins as
	About    string   `toml:"about"`
	SliceOf  string   `toml:"slice_of"` // the flavor that it has layers and experts of; empty: it is a whole model
	Config   Config   `toml:"model"`
	Training Training `toml:"training"`
}

// Training holds the settings of a run that suit one model and not another. A run has further
// settings, with the same default for all models.
type Training struct {
	Steps         int     `toml:"steps"`
	Seq           int     `toml:"seq"`            // tokens per sequence
	Batch         int     `toml:"batch"`          // sequences per optimizer step of all ranks; a multiple of 16
	MicroBatch    int     `toml:"micro_batch"`    // sequences per rank in one pass; 0: all
	EvalSequences int     `toml:"eval_sequences"` // validation sequences per evaluation
	LR            float64 `toml:"lr"`             // peak learning rate
	Warmup        int     `toml:"warmup"`         // steps, at most a tenth of Steps
	DecayFrac     float64 `toml:"decay_frac"`     // share of Steps at the end over which the rate decays
	Decay         string  `toml:"decay"`          // shape of the decay
	MinFactor     float64 `toml:"min_factor"`     // final rate as a share of the peak
	Moments       string  `toml:"moments"`        // type of AdamW's moments; empty: MomentsFP32
	ChainPasses   bool    `toml:"chain_passes"`   // see Model
}

// The types of AdamW's moments.
const (
	MomentsFP32 = "fp32"
	MomentsBF16 = "bf16"
)

// flavorText has one document per flavor.
//
//go:embed flavors.toml
var flavorText string

// Flavors lists the built-in models: whole ones, small to large, and slices of the large ones. The
// published ones follow DeepSeek's V2-Lite, V2 and V3 shapes, and that of Qwen3-30B-A3B, under the
// names that TorchTitan gives them.
func Flavors() []Flavor { return slices.Clone(readFlavors()) }

var readFlavors = sync.OnceValue(func() (all []Flavor) {
	known := map[string]Flavor{"": {Config: base()}}
	for text := range strings.SplitSeq(flavorText, "\n# ----\n") {
		var f Flavor
		err := stricttoml.Unmarshal([]byte(text), &f)
		f = known[f.Like]
		f.About = ""
		if err == nil {
			err = stricttoml.Unmarshal([]byte(text), &f)
		}
		if err != nil {
			panic(err)
		}
		if known[f.Name] = f; f.About != "" {
			all = append(all, f)
		}
	}
	return all
})

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

// FlavorLike returns the whole built-in model with the same kind of attention whose number of
// active parameters is nearest to that of a model, by ratio.
func FlavorLike(model Config) (nearest Flavor) {
	active := func(c Config) float64 { return math.Log(float64(max(c.Count().Active, 1))) }
	kind := func(c Config) [2]bool { return [2]bool{c.Attention != "", c.Attention == "" && c.IndexHeads > 0} }
	distance := math.Inf(1)
	for _, f := range Flavors() {
		if kind(f.Config) != kind(model) {
			continue
		}
		if d := math.Abs(active(f.Config) - active(model)); f.SliceOf == "" && d < distance {
			nearest, distance = f, d
		}
	}
	return nearest
}
