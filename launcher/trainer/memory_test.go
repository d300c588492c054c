package trainer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// held measures what every rank allocates for a step of cfg, and counts the parameters of all.
func held(t *testing.T, cfg config.Config, ranks int) (each []events.Memory, parameters int64) {
	return heldOnHosts(t, cfg, 1, ranks)
}

// heldOnHosts is held for ranks on some hosts. It leaves out what hosts gather sharded weights
// into.
func heldOnHosts(t *testing.T, cfg config.Config, hosts, onHost int) (each []events.Memory, parameters int64) {
	ranks := hosts * onHost
	t.Helper()
	precision, err := cfg.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	each = make([]events.Memory, ranks)
	counts := make([]int64, ranks)
	err = errors.Join(collective.NewHosts(slices.Repeat([]int{onHost}, hosts)...).Run(func(c *collective.Comm) error {
		mesh, err := newMesh(cfg, c)
		if err != nil {
			return err
		}
		model, err := moe.NewStage(mesh, cfg.Model, precision, cfg.Seq, nil, cfg.Model.Whole())
		if err != nil {
			return err
		}
		rule, err := cfg.Optimizer.Rule()
		if err != nil {
			return err
		}
		opt := optim.New(tensor.NewExec(), model.Groups, c, rule)
		if err := opt.Init(1); err != nil {
			return err
		}
		ex, n := tensor.NewExec(), cfg.RankBatch(ranks)
		sizeArenas(cfg, []*moe.Model{model}, ex, cfg.LayoutOrDefault(ranks), hosts)
		model.ChainPasses = cfg.ChainPasses
		if model.Recompute, err = moe.ParseRecompute(cfg.Recompute); err != nil {
			return err
		}
		tokens := make([]int32, n*cfg.Seq)
		for i := range tokens {
			tokens[i] = int32(i*i+c.Rank()) % 256
		}
		for left := cfg.Batch / cfg.DataRanks(ranks); left > 0; left -= n {
			b := moe.Batch{Inputs: tokens, Targets: tokens, Seq: cfg.Seq, GlobalSequences: cfg.Batch, More: left > n}
			if _, err := model.Train(ex, b); err != nil {
				return err
			}
		}
		m := heldBy(model)
		m.Optimizer, m.Activations = int64(optim.StateBytes(rule, model.Groups)), int64(model.ActivationPeak(ex))
		each[c.Rank()], counts[c.Rank()] = m, owned(model)
		return nil
	})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range counts {
		parameters += n
	}
	return each, parameters
}

// heldBy measures the weights and gradients of a model, with the sums of passes.
func heldBy(model *moe.Model) (m events.Memory) {
	for _, g := range model.Groups {
		copies := 1 // ranks that hold one
		if g.Shared {
			copies = g.Host().Size()
		}
		m.Weights += int64(g.Len() * g.Work.DType().Size() / copies)
		m.Gradients += int64(4*g.Len()/copies + g.PassBytes())
		for w := range g.Weights {
			if w.Buffer() != g.Work.Buffer() { // a quantized copy
				m.Weights += int64(len(w.Bytes()) / copies)
			}
		}
	}
	return m
}

// owned counts the parameters that no earlier rank has.
func owned(model *moe.Model) (n int64) {
	for _, g := range model.Groups {
		if g.Ranks == nil || g.Ranks.Rank() == 0 {
			n += int64(g.ParamLen())
		}
	}
	return n
}

// closeTo checks the parts of an estimate. activations is the ratio by which activations may be
// off.
func closeTo(m events.Memory, t *testing.T, what string, held events.Memory, activations float64) {
	t.Helper()
	for part, v := range map[string][3]float64{
		"weights": {float64(m.Weights), float64(held.Weights), 1.001}, "gradients": {float64(m.Gradients), float64(held.Gradients), 1.03},
		"optimizer": {float64(m.Optimizer), float64(held.Optimizer), 1.05}, "activations": {float64(m.Activations), float64(held.Activations), activations},
	} {
		if ratio := v[0] / v[1]; !(ratio > 1/v[2] && ratio < v[2]) {
			t.Errorf("%s: %s are estimated at %.0f bytes, held are %.0f", what, part, v[0], v[1])
		}
	}
}

// measurable is the debug model with a quarter of its weights, on short sequences.
func measurable(t *testing.T) config.Config {
	t.Helper()
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seq, cfg.Model.Dim, cfg.Model.DenseInter, cfg.Model.ExpertInter = 64, cfg.Model.Dim/2, cfg.Model.DenseInter/2, cfg.Model.ExpertInter/2
	return cfg
}

// The estimate is close to what a rank allocates, part by part, although experts of several ranks
// receive unequal numbers of rows. With equal numbers it is exact: see TestDryRun in package moe.
func TestEstimateMemory(t *testing.T) {
	for name, c := range some(map[string]struct {
		ranks  []int
		change func(*config.Config)
	}{
		"debug":           {[]int{1, 4}, func(*config.Config) {}},
		"replicas":        {[]int{4}, func(c *config.Config) { c.EP = 1 }},
		"pairs, deferred": {[]int{4}, func(c *config.Config) { c.EP, c.Batch, c.MicroBatch, c.Model.Dim = 2, 16, 1, 256 }},
		"chain of passes": {[]int{1}, func(c *config.Config) { c.MicroBatch, c.ChainPasses = 1, true }},
		"many experts":    {[]int{2}, func(c *config.Config) { c.Batch, c.MicroBatch, c.Model.Experts, c.Model.Layers = 16, 1, 64, 2 }},
		"MTP":             {[]int{2}, func(c *config.Config) { c.Model.MTPLayers = 1 }},
		"groups of MTP":   {[]int{2}, func(c *config.Config) { c.Model.Vocab, c.Model.MTPLayers, c.Seq, c.Batch = 17_001, 1, 300, 8 }},
		"full":            {[]int{4}, func(c *config.Config) { c.Recompute = "full" }},
		"cp":              {[]int{2, 4}, func(c *config.Config) { c.CP, c.Seq, c.Batch = 2, 256, 2 }},
		"cp, MTP":         {[]int{4}, func(c *config.Config) { c.CP, c.Seq, c.Batch, c.Model.MTPLayers, c.Precision = 4, 256, 2, 1, "mxfp8" }},
		"cp, recompute":   {[]int{4}, func(c *config.Config) { c.CP, c.EP, c.Seq, c.Batch, c.Recompute = 2, 1, 256, 2, "selective" }},
		"tp":              {[]int{2, 4}, func(c *config.Config) { c.TP, c.Seq, c.Batch = 2, 256, 2 }},
		"cp, tp, MTP": {[]int{4}, func(c *config.Config) {
			c.CP, c.TP, c.Seq, c.Batch, c.Model.MTPLayers, c.Precision = 2, 2, 256, 2, 1, "mxfp8"
		}},
		"mxfp8": {[]int{2}, func(c *config.Config) { c.Precision = "mxfp8" }},
		"nvfp4": {[]int{2}, func(c *config.Config) { c.Precision = "nvfp4" }},
	}, "debug", "pairs, deferred", "groups of MTP", "cp, tp, MTP", "mxfp8") {
		for _, ranks := range c.ranks {
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				cfg := measurable(t)
				cfg.Batch, cfg.Model.Layers = 8, 3
				c.change(&cfg)
				each, parameters := held(t, cfg, ranks)
				if want := cfg.Model.Count().Total; parameters != want {
					t.Errorf("the ranks hold %d parameters, counted are %d", parameters, want)
				}
				estimated := estimate.Memory(cfg, ranks)
				var all events.Memory
				for rank, m := range each {
					all = all.Plus(m)
					off := 1.1
					if ranks == 1 {
						off = 1.01
					}
					closeTo(estimated, t, fmt.Sprintf("rank %d", rank), m, off)
				}
				held := float64(all.Total()-all.Activations) / float64(parameters)
				if got := estimate.BytesPerParameter(cfg, ranks); math.Abs((got.All-got.Snapshot-got.Process)/held-1) > 0.05 {
					t.Errorf("%+v bytes per parameter are estimated, held are %g", got, held)
				}
			})
		}
	}
}

// On several hosts the estimate is as close.
func TestEstimateMemoryOfHosts(t *testing.T) {
	for name, change := range some(map[string]func(*config.Config){
		"bf16":         func(*config.Config) {},
		"mxfp8":        func(c *config.Config) { c.Precision = "mxfp8" },
		"passes":       func(c *config.Config) { c.MicroBatch = 1 },
		"fsdp":         func(c *config.Config) { c.FSDP = true },
		"fsdp, mxfp8":  func(c *config.Config) { c.FSDP, c.Precision, c.Model.MTPLayers = true, "mxfp8", 1 },
		"fsdp, passes": func(c *config.Config) { c.FSDP, c.MicroBatch = true, 1 },
		"replicas":     func(c *config.Config) { c.EP = 2 },
		"two per host": func(c *config.Config) { c.EP, c.Precision, c.MicroBatch = 1, "mxfp8", 1 },
		"two hosts":    func(c *config.Config) { c.EP = 4 },
		"cp":           func(c *config.Config) { c.CP, c.Seq, c.MicroBatch = 2, 256, 1 },
		"cp over":      func(c *config.Config) { c.CP, c.Seq, c.MicroBatch = 4, 256, 1 },
		"cp, tp over": func(c *config.Config) {
			c.CP, c.TP, c.Seq, c.Precision, c.MicroBatch, c.Model.MTPLayers = 2, 2, 256, "mxfp8", 1, 1
		},
		"tp, fsdp": func(c *config.Config) { c.TP, c.Seq, c.FSDP, c.Precision, c.MicroBatch = 2, 256, true, "mxfp8", 1 },
	}, "fsdp, mxfp8", "two per host", "cp, tp over") {
		places := [][2]int{{2, 2}, {4, 2}}
		switch name {
		case "fsdp, mxfp8":
		case "two hosts": // of each group
			places = places[1:]
		default:
			places = places[:1]
		}
		for _, on := range places {
			t.Run(fmt.Sprintf("%s/%dx%d", name, on[0], on[1]), func(t *testing.T) {
				cfg := measurable(t)
				cfg.Batch = 16
				change(&cfg)
				l := cfg.LayoutOrDefault(on[0] * on[1])
				each, _ := heldOnHosts(t, cfg, on[0], on[1])
				estimated := estimate.LayoutMemory(cfg, l, on[0])
				var buffers events.Memory
				for _, p := range estimate.PlansOf(cfg, l, on[0])[0] {
					if p.Part == "gathered" {
						buffers = p.Memory
					}
				}
				estimated.Weights, estimated.Gradients = estimated.Weights-buffers.Weights, estimated.Gradients-buffers.Gradients
				for rank, m := range each {
					closeTo(estimated, t, fmt.Sprintf("rank %d", rank), m, 1.1)
				}
			})
		}
	}
}

// Sizes that no machine has are large, not negative.
func TestEstimateOverflow(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{1 << 40, 1 << 50, 1 << 60, math.MaxInt} {
		cfg.Batch = batch
		if got := estimate.Memory(cfg, 1).Total(); got < 1<<50 {
			t.Errorf("a batch of %d needs %d bytes", batch, got)
		}
	}
	if got := events.Product(3, 5, 7); got != 105 {
		t.Errorf("3·5·7 is %d", got)
	}
}
