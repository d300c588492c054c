package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
)

// docs/flavors.md has a row for each flavor, with the defaults that it has in the code.
func TestFlavorsDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/flavors.md")
	if err != nil {
		t.Fatal(err)
	}
	ranks := map[string]int{"300K": 2, "1M": 2, "3M": 2, "wide": 2, "debug": 8, "debug-sparse": 8, "debug-v4": 8, "small": 2, "500M": 2, "3B": 8, "16B": 16, "16B-slice": 2, "16B-slice-128G": 8, "671B-slice": 2, "671B-slice-128G": 2}
	for _, f := range moe.Flavors() {
		cfg, err := config.Default(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		n, on := f.Config.Count(), ranks[f.Name]
		if on == 0 {
			on = 64
		}
		cfg.Threads = 1 // on every machine
		m := estimate.Memory(cfg, on)
		row := fmt.Sprintf("\n| `%s` | %s | %s | %d × %d × %d | %s | %g, %d | ", f.Name, report.Count(n.Total), report.Count(n.Active),
			cfg.Steps, cfg.Batch, cfg.Seq, report.Count(int64(cfg.Steps)*int64(cfg.Batch)*int64(cfg.Seq)), cfg.Optimizer.LR, cfg.Optimizer.Warmup)
		memory := fmt.Sprintf("%s on %d |", system.Bytes(int64(on)*m.Total()), on)
		if _, rest, ok := strings.Cut(string(text), row); !ok || !near(rest, memory) {
			t.Errorf("docs/flavors.md lacks the row%s%s", row, memory)
		}
	}
}

// near reports whether two texts begin with nearly the same number and the same three words. Panels
// of products, which differ by instruction tier, are up to a hundredth of a run's memory.
func near(text, want string) bool {
	parse := func(s string) (x float64, words [3]string) {
		if _, err := fmt.Sscan(s, &x, &words[0], &words[1], &words[2]); err != nil {
			return 0, words
		}
		return x, words
	}
	x, words := parse(text)
	y, wanted := parse(want)
	return words == wanted && math.Abs(x-y) < 0.02*y
}
