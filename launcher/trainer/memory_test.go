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

// heldOnHosts measures what every rank on some hosts allocates for a step of cfg, and counts the
// parameters of all. It leaves out what hosts gather sharded weights into.
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
		model, err := moe.NewOn(mesh, cfg.Model, precision, cfg.Seq, nil)
		if err != nil {
			return err
		}
		rule, err := cfg.Rule()
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
	shared := func(cp, tp int) func(*config.Config) {
		return func(c *config.Config) {
			c.CP, c.TP, c.Seq, c.Batch, c.MicroBatch, c.Model.ForceBalance = cp, tp, 256, 4, 1, true
		}
	}
	for name, c := range map[string]struct {
		hosts, each int
		change      func(*config.Config)
	}{
		"chain of passes":      {1, 1, func(c *config.Config) { c.Batch, c.MicroBatch, c.ChainPasses = 8, 1, true }},
		"debug":                {1, 4, func(*config.Config) {}},
		"pairs, deferred":      {1, 4, func(c *config.Config) { c.EP, c.MicroBatch, c.Model.Dim = 2, 1, 256 }},
		"groups of MTP":        {1, 2, func(c *config.Config) { c.Model.Vocab, c.Model.MTPLayers, c.Seq, c.Batch = 17_001, 1, 300, 8 }},
		"recompute, nvfp4":     {1, 2, func(c *config.Config) { c.Recompute, c.Precision = "full", "nvfp4" }},
		"cp, tp, MTP":          {1, 4, func(c *config.Config) {
			c.CP, c.TP, c.Seq, c.Batch, c.Model.MTPLayers, c.Precision = 2, 2, 256, 2, 1, "mxfp8"
		}},
		"fsdp, mxfp8":          {4, 2, func(c *config.Config) { c.FSDP, c.Precision, c.Model.MTPLayers = true, "mxfp8", 1 }},
		"replicas on hosts":    {2, 2, func(c *config.Config) { c.EP, c.Precision, c.MicroBatch = 1, "mxfp8", 1 }},
		"cp on hosts":          {4, 1, shared(4, 1)},
		"cp, tp, MTP on hosts": {2, 2, func(c *config.Config) { shared(2, 2)(c); c.Model.MTPLayers = 1 }},
		"tp on hosts":          {4, 1, shared(1, 4)},
	} {
		t.Run(fmt.Sprintf("%s/%dx%d", name, c.hosts, c.each), func(t *testing.T) {
			cfg, ranks := measurable(t), c.hosts*c.each
			cfg.Batch, cfg.Model.Layers = 16, 3
			c.change(&cfg)
			each, parameters := heldOnHosts(t, cfg, c.hosts, c.each)
			if want := cfg.Model.Count().Total; c.hosts == 1 && parameters != want {
				t.Errorf("the ranks hold %d parameters, counted are %d", parameters, want)
			}
			l, off := cfg.LayoutOrDefault(ranks), 1.1
			if ranks == 1 || cfg.Model.ForceBalance {
				off = 1.01
			}
			estimated := estimate.LayoutMemory(cfg, l, c.hosts)
			for _, p := range estimate.PlansOf(cfg, l, c.hosts)[0] {
				if p.Part == "gathered" { // what hosts gather sharded weights into
					estimated.Weights, estimated.Gradients = estimated.Weights-p.Memory.Weights, estimated.Gradients-p.Memory.Gradients
				}
			}
			var all events.Memory
			for rank, m := range each {
				all = all.Plus(m)
				closeTo(estimated, t, fmt.Sprintf("rank %d", rank), m, off)
			}
			held := float64(all.Total()-all.Activations) / float64(parameters)
			if got := estimate.BytesPerParameter(cfg, ranks); c.hosts == 1 && math.Abs((got.All-got.Snapshot-got.Process)/held-1) > 0.05 {
				t.Errorf("%+v bytes per parameter are estimated, held are %g", got, held)
			}
		})
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
