package trainer

import (
	"path/filepath"
	"testing"
)

// Ranks that are processes keep the state of any optimizer in their vaults: damage to it is found
// by its name, and costs one step.
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
	if want := "ALARM: the optimizer's state of rank 1 after step 2 has changed in memory: momentum_buffer of the dense group\n"; out != want {
		t.Errorf("output %q, want %q", out, want)
	}
	sameState(t, "toy", cfg, undisturbed, cfg.Steps)
}
