package trainer

import (
	"strings"
	"testing"

	"spmoe/launcher/system"
)

// The error of a run that does not fit names its largest part, and flags with which it fits.
func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		flavor string
		ranks  int
		change func(*Config)
		free   func(*Config) // as much memory is free as the run needs after this change
		want   []string
	}{
		"fits":           {"debug", 4, func(*Config) {}, func(*Config) {}, nil},
		"large batch":    {"debug", 1, func(c *Config) { c.Batch = 1 << 17 }, func(c *Config) { c.MicroBatch = 100 }, []string{"flavor debug on -np 1", "the largest part is activations", "give --micro-batch 64 ("}},
		"state":          {"small", 1, func(c *Config) { c.Batch, c.SaveAsync, c.SaveEvery = 1, true, 10 }, func(c *Config) { c.SaveAsync = false }, []string{"the largest part is the optimizer's state", "give --save-async=false ("}},
		"pipeline":       {"debug", 2, func(c *Config) { c.PP, c.Batch, c.PPMicrobatches, c.Recompute = 2, 1<<13, 8, "full" }, func(c *Config) { c.PPMicrobatches = 16 }, []string{"activations", "give --pp-microbatches 16 ("}},
		"long sequences": {"debug", 1, func(c *Config) { c.Seq, c.Batch, c.Recompute = 4096, 1, "full" }, func(c *Config) { c.Seq = 1000 }, []string{"activations", "give --seq 512 "}},
		"too many copies": {"small", 128, func(c *Config) {
			c.MicroBatch, c.Recompute, c.SaveAsync, c.Seq, c.Batch, c.Precision = 1, "full", false, 64, 128, "mxfp8"
		}, nil, []string{"use fewer ranks"}},
		"model too large": {"671B", 8, func(*Config) {}, nil, []string{"even with", "--recompute full", "TiB", "use a smaller --flavor, or more hosts"}},
		"several flags": {"small", 1, func(c *Config) { c.Batch, c.Seq, c.SaveEvery, c.SaveAsync = 256, 512, 10, true }, func(c *Config) { c.SaveAsync, c.Recompute, c.MicroBatch = false, "full", 1 },
			[]string{"give --save-async=false --recompute full --micro-batch 1 ("}},
	} {
		cfg, err := Default(c.flavor)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Batch, cfg.Seq, cfg.MicroBatch, cfg.Recompute, cfg.SaveEvery = 16, 128, 0, "none", 0
		c.change(&cfg)
		memory := system.Memory{Total: 1 << 40, Available: 3 << 30}
		if c.free != nil {
			small := cfg
			c.free(&small)
			memory.Available = small.need(c.ranks, c.ranks)
		}
		err = cfg.fitsIn(memory, c.ranks, c.ranks)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
	}
	if err := (Config{}).fitsIn(system.Memory{}, 1, 1); err != nil {
		t.Errorf("with unknown memory: %v", err)
	}
}
