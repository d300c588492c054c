package trainer

import (
	"strings"
	"testing"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// The error of a run that does not fit names its largest part, and flags with which it fits.
func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		flavor string
		ranks  int
		change func(*config.Config)
		free   func(*config.Config) // as much memory is free as the run needs after this change
		want   []string
	}{
		"fits":            {"debug", 4, func(*config.Config) {}, func(*config.Config) {}, nil},
		"state":           {"small", 1, func(c *config.Config) { c.Batch, c.SaveAsync, c.SaveEvery = 1, true, 10 }, func(c *config.Config) { c.SaveAsync = false }, []string{"the largest part is the optimizer's state", "give --set save_async=false ("}},
		"pipeline":        {"debug", 2, func(c *config.Config) { c.PP, c.Batch, c.PPMicrobatches, c.Recompute = 2, 1<<13, 8, "full" }, func(c *config.Config) { c.PPMicrobatches = 16 }, []string{"activations", "give --set pp_microbatches=16 ("}},
		"model too large": {"671B", 8, func(*config.Config) {}, nil, []string{"TiB", "a smaller --flavor"}},
	} {
		cfg, err := config.Default(c.flavor)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Batch, cfg.Seq, cfg.MicroBatch, cfg.Recompute, cfg.SaveEvery = 16, 128, 0, "none", 0
		c.change(&cfg)
		memory := system.Memory{Total: 1 << 40, Available: 3 << 30}
		if c.free != nil {
			small := cfg
			c.free(&small)
			memory.Available = estimate.Need(small, c.ranks, estimate.Goroutines(c.ranks))
		}
		err = estimate.FitsIn(cfg, memory, c.ranks, estimate.Goroutines(c.ranks))
		checkFits(t, name, err, c.want)
	}
	if err := estimate.FitsIn((config.Config{}), system.Memory{}, 1, estimate.Goroutines(1)); err != nil {
		t.Errorf("with unknown memory: %v", err)
	}
}

// checkFits checks that an error has all words, or that there is none.
func checkFits(t *testing.T, name string, err error, words []string) {
	t.Helper()
	if (err == nil) != (words == nil) {
		t.Errorf("%s: %v", name, err)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v lacks %q", name, err, w)
		}
	}
}

// Each further process needs memory for itself; ranks that are replaced have a second state. One
// process reads the text.
func TestFitsInProcesses(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	processes := estimate.Host{Ranks: 4, Processes: 6, Vaults: true}
	need, text := estimate.Need(cfg, 4, estimate.Goroutines(4)), estimate.TextBytes(nil)
	if more, want := estimate.Need(cfg, 4, processes)-need, 5*estimate.FurtherBytes+estimate.AllMemory(cfg, 4).Optimizer; more != want {
		t.Errorf("six processes need %d bytes more than one, want %d", more, want)
	}
	tiny := cfg
	tiny.Batch, tiny.Seq, tiny.Model.Dim, tiny.Model.Layers = 8, 32, 64, 2
	if need := estimate.Need(tiny, 4, processes); need < estimate.ReadTimes*text || need > 2*estimate.ReadTimes*text+6*estimate.FurtherBytes {
		t.Errorf("%d bytes are not what one process needs to read %d bytes", need, text)
	}
	for name, c := range map[string]struct {
		cfg  config.Config
		free int64
		on   estimate.Host
		want []string // of the error; nil: none
	}{
		"goroutines fit":  {cfg, need, processes, []string{"give --ranks goroutine"}},
		"reading":         {tiny, 100 * mib, processes, []string{"to read", ": tokenize it first (launcher data tokenize)"}},
		"of the launcher": {cfg, 2 * need, estimate.Host{Ranks: 4, Processes: 5}, nil},
	} {
		err := estimate.FitsIn(c.cfg, system.Memory{Total: 1 << 40, Available: c.free}, 4, c.on)
		checkFits(t, name, err, c.want)
	}
	cfg.Batch = 1 << 24
	if err := estimate.Fits(cfg, 4, estimate.Host{Ranks: 4}); err != nil { // the memory is that which the other ranks have left
		t.Errorf("a rank process checks memory again: %v", err)
	}
	if err := estimate.Fits(cfg, 4, estimate.Goroutines(4)); err == nil {
		t.Error("a batch of 2^24 sequences fits")
	}
}
