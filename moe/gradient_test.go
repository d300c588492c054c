package moe

// The gradients of Train against those of the reference, a second implementation from the formulas.

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spmoe/moe/reference"
	"spmoe/tensor"
)

// variant is a combination of the model's switches.
type variant struct{ softmax, normTopK, grouped, mtp, balance, qRank, yarn bool }

// variants is the two-level fractional factorial design 2^(7-3): every combination of any three
// switches occurs (twice) in 16 models.
func variants() []variant {
	var all []variant
	for i := range 16 {
		a, b, c, d := i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0
		all = append(all, variant{a, b, c, d, a != b != c, b != c != d, a != c != d})
	}
	return all
}

func (v variant) String() string {
	return fmt.Sprintf("softmax=%t,norm=%t,groups=%t,mtp=%t,balance=%t,qrank=%t,yarn=%t",
		v.softmax, v.normTopK, v.grouped, v.mtp, v.balance, v.qRank, v.yarn)
}

func (v variant) config() Config {
	c := tiny()
	c.NormTopK = v.normTopK
	if v.softmax {
		c.ScoreFunc = Softmax
	}
	if v.grouped {
		grouped(&c)
	}
	if v.mtp {
		c.MTPLayers, c.MTPWeight = 1, 0.4
	}
	if v.balance {
		c.BalanceAlpha = 0.1
	}
	if v.qRank {
		c.QRank = 10
	}
	if v.yarn {
		stretched(&c)
	}
	return c
}

// gradientBound is the largest accepted distance of a gradient from the reference's, as a share of
// its length: FP32 reaches a few 1e-6. What is as small as noiseFloor is rounding of larger terms.
const (
	gradientBound = 1e-5
	noiseFloor    = 1e-7
)

func TestGradients(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) { checkGradients(t, v.config(), batchOf(6, 4, 7, 32)) })
	}
}

// TestGradientsOfEdgeShapes covers what the switches do not: a single choice, groups of one
// expert, every expert chosen, no shared expert, no dense layer, sequences of one token.
func TestGradientsOfEdgeShapes(t *testing.T) {
	for name, c := range map[string]struct {
		seq  int
		edit func(c *Config)
	}{
		"top 1":           {6, func(c *Config) { c.TopK, c.NormTopK = 1, false }},
		"groups of one":   {6, func(c *Config) { c.Groups, c.TopKGroups = 8, 3 }},
		"every expert":    {6, func(c *Config) { c.TopK, c.BalanceAlpha = 8, 0.1 }},
		"in turn":         {6, func(c *Config) { c.ForceBalance = true }},
		"no shared":       {6, func(c *Config) { c.SharedExperts = 0 }},
		"two shared":      {6, func(c *Config) { c.SharedExperts = 2 }},
		"no dense layer":  {6, func(c *Config) { c.DenseLayers = 0 }},
		"no MoE layer":    {6, func(c *Config) { c.DenseLayers = 2 }},
		"one token":       {1, func(c *Config) { c.MTPLayers = 1 }},
		"two tokens, mtp": {2, func(c *Config) { c.MTPLayers, c.BalanceAlpha = 1, 0.1 }},
	} {
		t.Run(name, func(t *testing.T) {
			checkGradients(t, with(tiny(), c.edit), batchOf(6, min(12/c.seq, 5), c.seq, 32))
		})
	}
}

// TestGradientsOfPackedDocuments: documents of a sequence do not attend to each other.
func TestGradientsOfPackedDocuments(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.MTPLayers, c.MTPWeight, c.QRank = 1, 0.4, 10 })
	b := batchOf(6, 4, 7, cfg.Vocab)
	open := checkGradients(t, cfg, b)
	b.First = packed(4, 7)
	if checkGradients(t, cfg, b) == open {
		t.Error("the loss is that of attention over all documents")
	}
}

// TestGradientsOfChosenKeys: indexers and what they choose, in both stages, with the choice of
// another layer, documents, and predictions further ahead.
func TestGradientsOfChosenKeys(t *testing.T) {
	few := func(c *Config) { choosing(c); c.IndexTopK = 3 }
	for name, c := range map[string]struct {
		edit      func(c *Config)
		documents bool
	}{
		"interleaved":  {few, false},
		"halves":       {func(c *Config) { few(c); c.IndexRope, c.IndexerTypes, c.NormEps = halfPairs, "", 1e-3 }, false},
		"documents":    {few, true},
		"mtp":          {func(c *Config) { few(c); c.MTPLayers, c.MTPWeight, c.BalanceAlpha = 1, 0.4, 0.1 }, false},
		"one key":      {func(c *Config) { few(c); c.IndexTopK = 1 }, false},
		"warmup":       {func(c *Config) { few(c); c.IndexStage = indexWarmup }, false},
		"warmup, docs": {func(c *Config) { few(c); c.IndexStage, c.MTPLayers = indexWarmup, 1 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := batchOf(6, 3, 14, 32)
			if c.documents {
				b.First = packed(3, 14)
			}
			checkGradients(t, with(tiny(), c.edit), b)
		})
	}
}

// checkGradients compares the loss and all gradients of a pass with those of the reference, which
// makes the same choices of experts. It returns the loss.
func checkGradients(t *testing.T, cfg Config, b Batch) float64 {
	t.Helper()
	m := alone(t, cfg, tensor.FP32, b.Seq)
	model, call := referenceOf(t, m.model, b)
	choices := map[string]reference.Tensor{}
	m.model.Observe(func(name string, x tensor.Tensor) {
		var layer int
		if _, err := fmt.Sscanf(name, "layer%d_topk_index", &layer); err == nil && strings.HasSuffix(name, "topk_index") {
			values := make([]float64, x.Len())
			for i, e := range x.Reshape(x.Len()).I32() {
				values[i] = float64(e)
			}
			choices[fmt.Sprintf("model.layers.%d.mlp.gate.indices", layer)] = reference.Tensor{Data: values}
		}
	})
	loss, err := m.model.Train(m.ex, b)
	if err != nil {
		t.Fatal(err)
	}
	call.Given, call.Backward = known(choices), true
	results, err := model.Run(call)
	if err != nil {
		t.Fatal(err)
	}
	var want, worst float64
	for path, weight := range call.Losses {
		want += weight * results[path].Data[0]
	}
	if got := loss.objective(cfg); math.Abs(got-want) > 2e-6*want {
		t.Errorf("the loss is %.8g, the reference's %.8g", got, want)
	}
	if head := results[fmt.Sprintf("model.layers.%d.shared_head.head.weight", cfg.Layers)]; head.Data != nil {
		for i, v := range head.Data { // the model's own head
			results["lm_head.weight"].Data[i] += v
		}
	}
	for _, p := range m.model.Params() {
		want := make([]float32, p.Len())
		for i, v := range results[p.Name].Data {
			want[i] = float32(v)
		}
		off := distance(p.Grad.F32(), want)
		if l2(want) > noiseFloor {
			worst = max(worst, off)
		}
		if !(off <= gradientBound || off*l2(want) <= noiseFloor) {
			t.Errorf("the gradient of %s is off by %.2g of %.3g", p.Name, off, l2(want))
		}
	}
	t.Logf("worst gradient off by %.2g", worst)
	return want
}

// referenceOf returns the second implementation of a model, and a call with its weights.
func referenceOf(t *testing.T, m *Model, b Batch) (*reference.Module, reference.Call) {
	t.Helper()
	cfg := m.Config
	data, err := with(cfg, func(c *Config) { c.OutputBias = false }).MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	c, err := reference.ReadConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	c.LatentEps, c.Softmax, c.NormTopK, c.OutputBias, c.Interleaved = cfg.NormEps, cfg.ScoreFunc == Softmax, cfg.NormTopK, cfg.OutputBias, cfg.KVHeads == 0
	if cfg.IndexHeads > 0 {
		c.LatentEps = 1e-6
	}
	weights := map[string][]float32{}
	for _, p := range m.Params() {
		weights[p.Name] = p.Work.F32()
	}
	for _, r := range m.Routings() {
		weights[r.Name] = r.Bias.F32()
	}
	weights[fmt.Sprintf("model.layers.%d.shared_head.head.weight", cfg.Layers)] = weights["lm_head.weight"]
	call := reference.Call{
		Batch: &reference.Batch{Batch: len(b.Inputs) / b.Seq, Seq: b.Seq, IDs: b.Inputs, Labels: b.Targets, LabelsShifted: true, Documents: b.First},
		Param: func(name string) (x reference.Tensor, err error) {
			for _, v := range weights[name] {
				x.Data = append(x.Data, float64(v))
			}
			return x, nil
		},
	}
	losses := map[string]float64{"loss": 1}
	for i := range cfg.Layers + cfg.MTPLayers {
		if i >= cfg.Layers {
			losses[fmt.Sprintf("model.layers.%d.loss", i)] = cfg.MTPWeight
		}
		if c.Sparse(i) && cfg.BalanceAlpha > 0 {
			losses[fmt.Sprintf("model.layers.%d.mlp.gate.sequence_balance", i)] = cfg.BalanceAlpha
		}
		if cfg.hasIndexer(i) {
			losses[fmt.Sprintf("model.layers.%d.self_attn.indexer.loss", i)] = cfg.IndexWeight
		}
	}
	call.Losses, call.Warmup = losses, cfg.warmsUp()
	modules := c.Modules()
	return modules[len(modules)-1], call
}

// known returns a lookup of tensors by name for Call.Given.
func known(tensors map[string]reference.Tensor) func(name string) (reference.Tensor, bool) {
	return func(name string) (reference.Tensor, bool) {
		x, ok := tensors[name]
		return x, ok
	}
}
