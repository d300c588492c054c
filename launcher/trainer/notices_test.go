package trainer

import (
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// sized is a tokenizer with a number of tokens, which are bytes up to 256.
type sized struct {
	datasets.Bytes
	tokens int
}

func (s sized) Name() string {
	if s.tokens <= 256 {
		return s.Bytes.Name()
	}
	return "bpe:1"
}

func (s sized) VocabSize() int { return s.tokens }

func TestNotices(t *testing.T) {
	for name, c := range map[string]struct {
		flavor string
		tokens int
		change func(*config.Config)
		want   []string // words of each notice
	}{
		"bytes in a large vocabulary": {"small", 256, func(c *config.Config) { c.Tokenizer = "bytes" }, []string{"tokenizer bytes uses 256 of the vocabulary's 8192 rows (3.1 %)", "launcher data train-tokenizer --vocab 8192 --out tokenizer.json", "--tokenizer"}},
		"small tokenizer":             {"small", 1000, func(c *config.Config) { c.Tokenizer = "own.json" }, []string{"tokenizer own.json uses 1000 of", "leave model.vocab out", "names no token that ends documents, so the byte NUL (0) stands between them"}},
		"warm-up longer than the run": {"debug", 256, func(c *config.Config) { c.Steps, c.Optimizer.Warmup = 10, 500 }, []string{"optimizer.warmup is 500"}},
		"warm-up beyond the schedule": {"debug", 256, func(c *config.Config) { c.Steps, c.ScheduleSteps, c.Optimizer.Warmup = 50, 10, 20 }, []string{"optimizer.warmup is 20"}},
	} {
		cfg, err := config.Default(c.flavor)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Model.Vocab = map[string]int{"debug": 256, "small": 8192}[c.flavor]
		c.change(&cfg)
		got := strings.Join(estimate.Notices(cfg, sized{tokens: c.tokens}), "\n")
		if (got == "") != (c.want == nil) {
			t.Errorf("%s: %q", name, got)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", name, got, w)
			}
		}
	}
}
