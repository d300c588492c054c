package projection

// What published rows say about a run that resembles them, and how far predictions have been off:
// data/effects.json, which effects.py writes.

import (
	"math"
	"strings"
)

// Effects is data/effects.json. Effects are logarithms of throughput over the formula's.
type Effects struct {
	About   string            `json:"about"`
	Inputs  map[string]string `json:"inputs"`  // SHA-256 of the files of rows
	Formula string            `json:"formula"` // SHA-256 of the formula's answers for these rows

	Common    float64            `json:"common"`
	Framework map[string]float64 `json:"framework"`
	Family    map[string]float64 `json:"family"`
	Model     map[string]float64 `json:"model"`
	// of GPUs and their hosts: H, B, GB, MI
	Generation map[string]float64 `json:"generation"`
	Chip       map[string]float64 `json:"gpu"`
	Cluster    map[string]float64 `json:"cluster"`    // of a model, GPU and framework
	NewFamily  float64            `json:"new_family"` // of a family without a row

	// standard deviation of a row whose model has other rows, whose family has, and of others
	OfModel  float64 `json:"sd_model"`
	OfFamily float64 `json:"sd_family"`
	OfNone   float64 `json:"sd_none"`
	Steps    float64 `json:"sd_step"` // of a step from one published figure to the next

	Deviations map[string]float64 `json:"deviations"` // of the effects themselves
	HostMicros map[string]float64 `json:"host_us"`    // that fit these rows best
	Baselines  []float64          `json:"baselines"`  // errors of three simple rules on tier all
	Tiers      []Tier             `json:"tiers"`
	Rows       []Scored           `json:"rows"`
}

// Tier is how well rows are predicted from those of other clusters: model, GPU and framework.
type Tier struct {
	Name     string `json:"tier"`
	About    string `json:"about"`
	Rows     int    `json:"rows"`
	Clusters int    `json:"clusters"`
	// mean absolute error, mean error and coverage of the first test, before it was opened
	Blind       float64 `json:"blind"`
	BlindBias   float64 `json:"blind_bias"`
	BlindInside float64 `json:"blind_inside"`
	Error       float64 `json:"error"`  // the same, predicted from other clusters
	Bias        float64 `json:"bias"`   // mean error
	Inside      float64 `json:"inside"` // share of rows in their 80 % intervals
}

// Scored is a row that is predicted from those of other clusters, in tokens/s per GPU.
type Scored struct {
	ID        string  `json:"id"`
	Tier      string  `json:"tier"`
	Published float64 `json:"published"`
	Predicted float64 `json:"predicted"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
}

// Inside reports whether the published figure lies in the 80 % interval.
func (s Scored) Inside() bool { return s.Low <= s.Published && s.Published <= s.High }

// PublishedEffects returns the effects of published rows.
func PublishedEffects() Effects { return data().effects }

// Traits are what a run has in common with others.
type Traits struct {
	Framework  string `json:"framework"`
	Family     string `json:"family"` // of models
	Model      string `json:"model"`
	Generation string `json:"generation"` // of GPUs
	Chip       string `json:"gpu"`
}

// Traits returns those of the run.
func (r Run) Traits() Traits {
	chip := strings.ToUpper(r.GPU)
	return Traits{frameworkOf(r.Stack), familyOf(r.Model), r.Model, strings.TrimRight(chip, "0123456789X"), chip}
}

// frameworkOf returns the framework of a stack. AutoModel, PithTrain and TorchTitan are one: FSDP2
// and plain PyTorch.
func frameworkOf(stack string) string {
	framework, _, _ := strings.Cut(stack, "_")
	if framework == "automodel" || framework == "pithtrain" || stack == "primus_titan" {
		return "titan"
	}
	return framework
}

// families are the families of models by the beginnings of their names. Other models have the part
// before the first hyphen.
var families = []struct{ prefix, family string }{
	{"671B", "DeepSeek-V3"}, {"Kimi", "DeepSeek-V3"}, {"236B", "DeepSeek-V2"}, {"16B", "DeepSeek-V2"}, {"Moonlight", "DeepSeek-V2"},
	{"DeepSeek-V4", "DeepSeek-V4"}, {"GPT-OSS", "GPT-OSS"}, {"30B", "Qwen3"}, {"Qwen3-Next", "Qwen3-Next"},
}

func familyOf(model string) string {
	for _, f := range families {
		if strings.HasPrefix(model, f.prefix) {
			return f.family
		}
	}
	family, _, _ := strings.Cut(model, "-")
	return family
}

// Of returns the mean and the standard deviation of the logarithm of a run's throughput over the
// formula's.
func (e Effects) Of(t Traits) (mean, sd float64) {
	mean, sd = e.Common+e.Framework[t.Framework]+e.Generation[t.Generation]+e.Chip[t.Chip], e.OfNone
	family, known := e.Family[t.Family]
	if !known {
		return mean + e.NewFamily, sd
	}
	mean, sd = mean+family, e.OfFamily
	if model, known := e.Model[t.Model]; known {
		mean, sd = mean+model+e.Cluster[t.Model+" on "+t.Chip+", "+t.Framework], e.OfModel
	}
	return mean, sd
}

// Range is an 80 % interval with its median.
type Range struct {
	P10, P50, P90 float64
	Sigma         float64 // standard deviation of its logarithm
}

// Width returns half the interval divided by its middle.
func (r Range) Width() float64 { return (r.P90 - r.P10) / (r.P90 + r.P10) }

// z80 is the half width of a normal distribution's middle 80 %, in standard deviations.
const z80 = 1.2815515655446004

func rangeOf(tokens, mean, sd float64) Range {
	at := func(z float64) float64 { return tokens * math.Exp(mean+z*sd) }
	return Range{at(-z80), at(0), at(z80), sd}
}

// Range returns what to expect of a run: the formula's throughput, corrected by published rows. A
// run with the residual of the calibration needs no correction.
func (b Budget) Range() Range {
	if b.Run.Residual != 0 {
		return rangeOf(b.Tokens, 0, data().effects.Steps)
	}
	mean, sd := data().effects.Of(b.Run.Traits())
	return rangeOf(b.Tokens, mean, sd)
}
