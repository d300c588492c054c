package trainer

import (
	"path/filepath"
	"testing"
)

// The seals of the state work for any optimizer: damage is found by its name and restored.
func TestToyVault(t *testing.T) {
	undisturbed := guardedConfig(t, func(c *Config) { useToy(c); c.SaveEvery = 0 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	cfg := undisturbed
	cfg.Out = filepath.Join(t.TempDir(), "run")
	out, _, err := processes(t, injury{Config: cfg, Step: 3, Rank: 1, What: 3})
	if err != nil {
		t.Fatal(err)
	}
	if want := "ALARM: a byte of the optimizer's state of rank 1 after step 2 had changed in memory: momentum_buffer of the dense group: it was restored from its checksum\n"; out != want {
		t.Errorf("output %q, want %q", out, want)
	}
	sameState(t, "toy", cfg, undisturbed, cfg.Steps)
}
