package trainer

import (
	"path/filepath"
	"testing"

	"spmoe/launcher/trainer/config"
)

// The seals of the state work for any optimizer: damage is found by its name and restored.
func TestVaultOfOptimizers(t *testing.T) {
	for name, what := range map[string]int{"toy": 3, "muon": 7} { // numbers of the momentum of dense weights
		undisturbed := guardedConfig(t, func(c *config.Config) { useToy(c); c.Optimizer.Name, c.SaveEvery = name, 0 })
		if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
			t.Fatal(err)
		}
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		out, _, err := processes(t, injury{Config: cfg, Step: 3, Rank: 1, What: what})
		if err != nil {
			t.Fatal(err)
		}
		if want := "ALARM: a byte of the optimizer's state of rank 1 after step 2 had changed in memory: momentum_buffer of the dense group: it was restored from its checksum\n"; out != want {
			t.Errorf("%s: output %q, want %q", name, out, want)
		}
		sameState(t, name, cfg, undisturbed, cfg.Steps)
	}
}
