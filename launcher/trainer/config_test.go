package trainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// Each field is checked, and the message names it, what was given and what is expected.
func TestValidate(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		ranks  int
		change func(*config.Config)
	}{
		"-np is 0: give 1 or more":                                                                          {0, func(*config.Config) {}},
		"steps is 0: give 1 to 2147483648: number of":                                                       {1, func(c *config.Config) { c.Steps = 0 }},
		"seq is 4097: give 1 to 4096":                                                                       {1, func(c *config.Config) { c.Seq = 4097 }},
		"log_every is 0: give 1":                                                                            {1, func(c *config.Config) { c.LogEvery = 0 }},
		"save_every is -1: give a number of steps (500)":                                                    {1, func(c *config.Config) { c.SaveEvery = -1 }},
		"a record holds the choices of at most 65536 experts":                                               {1, func(c *config.Config) { c.RecordEvery, c.Model.Experts = 1, 65537 }},
		"sample_prompt is empty: give text":                                                                 {1, func(c *config.Config) { c.SamplePrompt = "" }},
		`precision is "fp16": use`:                                                                          {1, func(c *config.Config) { c.Precision = "fp16" }},
		"optimizer.lr is -1: give a positive":                                                               {1, func(c *config.Config) { c.Optimizer.LR = -1 }},
		"model.top_k is 17: give 1 to 16":                                                                   {1, func(c *config.Config) { c.Model.TopK = 17 }},
		`ep_dispatch: rows in "fp8" cannot be exchanged: use bf16`:                                          {1, func(c *config.Config) { c.EPDispatch = "fp8" }},
		`ep_dispatch is "mxfp8": it needs ep_exchange onesided`:                                             {1, func(c *config.Config) { c.EPExchange, c.EPDispatch = "standard", "mxfp8" }},
		`recompute is "all": use one of none, selective, full`:                                              {1, func(c *config.Config) { c.Recompute = "all" }},
		"ep_capacity is 2: it needs ep_exchange onesided":                                                   {1, func(c *config.Config) { c.EPExchange, c.EPCapacity = "standard", 2 }},
		"-np 5: 5 ranks do not divide 16 experts: use -np 1, 2, 4, 8 or 16 and a --batch that it divides":   {5, func(*config.Config) {}},
		"batch is 6: give a multiple of the 4 ranks, such as 8, or use -np 1 or 2":                          {4, func(c *config.Config) { c.Batch = 6 }},
		"batch is 16: give a multiple of the 3 ranks, such as 18, or use -np 1, 2, 4, 8 or 16":              {3, func(c *config.Config) { c.Model.DenseLayers = c.Model.Layers; c.Model.Experts = 0 }},
		"the 2 ranks that share a sequence (cp) take whole blocks of 32 tokens each: give a multiple of 64": {4, func(c *config.Config) { c.CP, c.Seq = 2, 96 }},
		"divide the heads of attention, and model.heads is 2":                                               {4, func(c *config.Config) { c.CP, c.Model.Heads = 4, 2 }},
		"the ranks that share sequences (tp) have one sequence in a pass: give 0 or 1":                      {4, func(c *config.Config) { c.TP, c.MicroBatch = 2, 2 }},
		"routes are recorded and replayed by whole sequences: give cp 1 and tp 1":                           {4, func(c *config.Config) { c.CP, c.RecordRoutes = 2, true }},
		"ep 2 does not divide dp_shard 1 (ep divides dp_shard · cp · tp): the nearest legal layout is":      {4, func(c *config.Config) { c.DPReplicate, c.EP = 4, 2 }},
		"pp_microbatches is 4: it needs pp":                                                                 {1, func(c *config.Config) { c.PPMicrobatches = 4 }},
		`"a\xff" is not UTF-8`:                                                                              {1, func(c *config.Config) { c.Data = []string{"a\xff"} }},
	} {
		cfg, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		c.change(&cfg)
		if err := cfg.Validate(c.ranks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// A dense model runs on any number of ranks, and no prompt is needed without a sample.
	cfg := tiny(t, func(c *config.Config) {
		c.Model.DenseLayers, c.Model.Experts, c.Batch, c.SampleTokens, c.SamplePrompt = 2, 0, 9, 0, ""
	})
	if err := cfg.Validate(3); err != nil {
		t.Error(err)
	}
	if got := train(t, cfg, 3, ""); len(got.steps) != 4 || got.steps[3].Imbalance != 1 {
		t.Errorf("a dense model on 3 ranks: %+v", got.steps)
	}
}

// Prepare finds what cannot be, and writes nothing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, nil)
	train(t, cfg, 2, "")
	elsewhere := filepath.Join(t.TempDir(), "other")
	for want, c := range map[string]struct {
		resume string
		change func(*config.Config)
	}{
		"holds step-00000004 of an earlier run":                            {"", func(*config.Config) {}},
		"flavor debug on -np 2 needs about":                                {"", func(c *config.Config) { c.Batch, c.Out = 1<<24, elsewhere }},
		"training data: a sequence length of 4096":                         {"", func(c *config.Config) { c.Seq, c.Out, c.Data = 4096, elsewhere, []string{"state/totals.go"} }},
		"not a spmoe checkpoint":                                           {t.TempDir(), func(*config.Config) {}},
		"at step 4, after the end of the run":                              {cfg.Out, func(c *config.Config) { c.Steps = 3 }},
		"experts.0.down_proj.weight\" has shape [32 32], expected [32 16]": {cfg.Out, func(c *config.Config) { c.Model.ExpertInter = 16 }},
		"sequence length of 32, here it is 16":                             {cfg.Out, func(c *config.Config) { c.Seq = 16 }},
		"other data":                                                       {cfg.Out, func(c *config.Config) { c.Data = []string{"config/config.go"} }},
	} {
		changed := cfg
		c.change(&changed)
		r := &reports{}
		if _, err := Prepare(changed, 2, c.resume, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if len(r.events) != 0 {
			t.Errorf("%s: %v were reported", want, r.events)
		}
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("Prepare made the folder of the run")
	}
	cfg.Steps = 5
	job, err := Prepare(cfg, 2, cfg.Out, &reports{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	}
}
