package trainer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
)

// An interval is a number of steps or a time, as text and in a config file, and is written as it is
// read.
func TestInterval(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Interval{
		"500": 500, "'500'": 500, "0": 0, "'0'": 0, "'10m'": config.Every(10 * time.Minute), "'90s'": config.Every(90 * time.Second), "'1h30m0s'": config.Every(90 * time.Minute), "'1h'": config.Every(time.Hour),
	} {
		cfg := tiny(t, nil)
		if err := stricttoml.Unmarshal([]byte("save_every = "+text), &cfg); err != nil || cfg.SaveEvery != want {
			t.Errorf("%s: %v, error %v, want %v", text, cfg.SaveEvery, err, want)
		}
		written, err := config.TOML(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var again config.Config
		if err := stricttoml.Unmarshal(written, &again); err != nil || again.SaveEvery != want || again.SaveRetry != cfg.SaveRetry {
			t.Errorf("%s: read back %v and %v, error %v", text, again.SaveEvery, again.SaveRetry, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "often", "-10m", "1ms", "99999999999999999999", "10 m"} {
		if err := new(config.Interval).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "a number of steps (500), a time (10m, 90s, 2h) or 0") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// Saves by time happen on all ranks at the step at which rank 0's clock says so, and change no bit.
func TestSavesByTime(t *testing.T) {
	t.Parallel()
	straight := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery = 9, 0 })
	train(t, straight, 1, "")
	want := sumOf(t, straight)
	for _, ranks := range []int{1, 2, 4} {
		cfg := straight
		cfg.Out, cfg.SaveEvery, cfg.Keep = filepath.Join(t.TempDir(), "run"), config.Every(3*time.Minute), 9
		now := time.Unix(0, 0)
		said := &reports{onStep: func(events.Step) { now = now.Add(time.Minute) }}
		job, err := Prepare(cfg, ranks, "", said)
		if err != nil {
			t.Fatal(err)
		}
		job.clock.Now = func() time.Time { return now }
		if err := job.Run(t.Context(), spmd.Goroutines{N: ranks}); err != nil {
			t.Fatal(err)
		}
		var saved []int
		for _, s := range said.saved {
			saved = append(saved, s.Step)
		}
		// Step 4 begins after 3 minutes; the next save is due 3 minutes after its end.
		if !slices.Equal(saved, []int{4, 8, 9}) {
			t.Errorf("%d ranks: saved after steps %v, want 4, 8 and 9", ranks, saved)
		}
		if sumOf(t, cfg) != want {
			t.Errorf("%d ranks: the state at the end differs from that of a run that saves once", ranks)
		}
	}
}

// The space for checkpoints is what will be there at the same time, less what is there already.
func TestCheckSpace(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 100, 10, 3 })
	train(t, cfg, 2, "")
	var real int64
	files, err := filepath.Glob(filepath.Join(cfg.Out, "step-00000100", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		real += int64(len(read(t, f)))
	}
	size := estimate.CheckpointBytes(cfg, 2)
	if size > real*11/10 || size < real*8/10 { // names, checksums and padding show in a checkpoint this small
		t.Errorf("a checkpoint is estimated at %d bytes and has %d", size, real)
	}
	for name, c := range map[string]struct {
		change         func(*config.Config)
		step, existing int
		sizes          int64
	}{
		"keep 3":            {nil, 0, 0, 4},
		"keep 3, two there": {nil, 20, 2, 2},
		"by time":           {func(c *config.Config) { c.SaveEvery = config.Every(time.Hour) }, 0, 0, 4},
		"only at the end":   {func(c *config.Config) { c.SaveEvery = 0 }, 0, 0, 1},
		"keep 0":            {func(c *config.Config) { c.Keep = 0 }, 0, 0, 1},
	} {
		cfg := cfg
		if c.change != nil {
			c.change(&cfg)
		}
		if err := estimate.CheckSpace(cfg, 2, c.step, c.existing, c.sizes*size); err != nil {
			t.Errorf("%s: %v, with space for %d checkpoints", name, err, c.sizes)
		}
		if c.sizes == 0 {
			continue
		}
		err := estimate.CheckSpace(cfg, 2, c.step, c.existing, c.sizes*size-1)
		if err == nil || !strings.Contains(err.Error(), cfg.Out) {
			t.Errorf("%s: error %v, with a byte less than %d checkpoints take", name, err, c.sizes)
		}
	}
}
