package config_test

import (
	"slices"
	"testing"

	"spmoe/launcher/trainer/config"
)

// The passes of a step are subtrees of the sum over the global batch if the ranks that read
// different sequences are a power of two. Recipes that depend on passes keep theirs.
func TestPassSizes(t *testing.T) {
	others := []string{"3 ranks", "scale per tensor", "dropped tokens", "chain", "pipeline, given"} // have other bits
	for name, c := range map[string]struct {
		ranks, batch, micro int
		change              func(*config.Config)
		want                []int
	}{
		"one rank, one pass":    {1, 7, 0, nil, []int{7}},
		"one rank":              {1, 12, 5, nil, []int{4, 4, 4}},
		"one rank, with a rest": {1, 7, 4, nil, []int{4, 3}},
		"power of two":          {4, 16, 0, nil, []int{4}},
		"3 sequences per rank":  {4, 12, 0, nil, []int{2, 1}},
		"7 sequences per rank":  {2, 14, 0, nil, []int{4, 2, 1}},
		"small passes":          {2, 14, 3, nil, []int{2, 2, 2, 1}},
		"3 ranks":               {3, 9, 2, nil, []int{2, 1}},
		"scale per tensor":      {4, 28, 3, func(c *config.Config) { c.Precision = "nvfp4" }, []int{3, 3, 1}},
		"dropped tokens":        {4, 12, 0, func(c *config.Config) { c.EPCapacity = 1 }, []int{3}},
		"chain":                 {4, 12, 0, func(c *config.Config) { c.ChainPasses = true }, []int{3}},
		"pipeline":              {4, 12, 4, func(c *config.Config) { c.PP = 2 }, []int{2, 2, 2}},
		"pipeline, given":       {4, 12, 0, func(c *config.Config) { c.PP, c.PPMicrobatches = 2, 2 }, []int{3, 3}},
		"shared sequences":      {4, 6, 0, func(c *config.Config) { c.CP = 2 }, []int{1, 1, 1}},
		"batch too small":       {4, 3, 0, nil, nil},
	} {
		cfg, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Batch, cfg.MicroBatch = c.batch, c.micro
		if c.change != nil {
			c.change(&cfg)
		}
		got := cfg.PassSizes(c.ranks)
		if !slices.Equal(got, c.want) || cfg.Passes(c.ranks) != len(got) {
			t.Errorf("%s: passes of %v (%d of them), want %v", name, got, cfg.Passes(c.ranks), c.want)
		}
		if got := cfg.CutsSubtrees(c.ranks); got != slices.Contains(others, name) {
			t.Errorf("%s: cuts subtrees: %v", name, got)
		}
	}
}

// Equal hosts keep the tree over ranks if each has a power of two of those that read different
// sequences. Unequal hosts send the sums of subtrees.
func TestCutsHosts(t *testing.T) {
	for name, c := range map[string]struct {
		ranks, pp, cp int
		first         []int
		want          bool
	}{
		"one host":                {6, 1, 1, []int{0}, false},
		"3 and 3":                 {6, 1, 1, []int{0, 3}, true},
		"2, 2 and 2":              {6, 1, 1, []int{0, 2, 4}, false},
		"3 and 5":                 {8, 1, 1, []int{0, 3}, false},
		"stages on single hosts":  {6, 2, 1, []int{0, 3}, false},
		"stages on several hosts": {12, 2, 1, []int{0, 3, 6, 9}, true},
		"the last stage only":     {18, 3, 1, []int{0, 6, 12, 15}, true},
		"the second stage only":   {12, 2, 1, []int{0, 2, 4, 6, 9}, true},
		"3 groups on each":        {12, 1, 2, []int{0, 6}, true},
		"2 groups on each":        {8, 1, 2, []int{0, 4}, false},
		"groups that hosts cut":   {6, 1, 2, []int{0, 1, 2, 3, 4, 5}, false},
	} {
		cfg, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Batch, cfg.PP, cfg.CP, cfg.EP, cfg.Model.Layers = 72, c.pp, c.cp, 1, 6
		if got := cfg.CutsHosts(c.ranks, c.first); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
