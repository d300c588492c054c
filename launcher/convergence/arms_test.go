package convergence

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// An arm has the configuration that its name says, and it can be trained.
func TestParseArms(t *testing.T) {
	for name, want := range map[string]func(*config.Config){
		"bf16":                func(c *config.Config) {},
		"mxfp8+e5m2+floor":    func(c *config.Config) { c.Precision, c.MX.Gradient, c.MX.Scale = "mxfp8", "e5m2", "floor" },
		"nvfp4+no-rht+no-2d":  func(c *config.Config) { c.Precision, c.NVFP4.RHT, c.NVFP4.Squares = "nvfp4", false, false },
		"bf16+null":           func(c *config.Config) { c.Optimizer.LR = 0x1.89374ep-09 }, // 3e-3 is 0x1.89374cp-09 in FP32
		"fp8-block+pow2+h100": func(c *config.Config) { c.Precision, c.FP8.Scale, c.Sum = "fp8-block", "pow2", "h100" },
		"bf16+bf16-moments":   func(c *config.Config) { c.Optimizer.Moments = "bf16" },
		"mxfp8-experts+wire":  func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8-experts", "mxfp8", "mxfp8" },
		"mxfp4-e2m1+wgrad-only+rht+stochastic": func(c *config.Config) {
			c.Precision, c.MXFP4.Products, c.MXFP4.Hadamard, c.MXFP4.Stochastic = "mxfp4-e2m1", "wgrad", "signs", true
		},
		"bf16+optimizer.lr=1e-3+optimizer.clip-norm=2+optimizer.decay=cosine": func(c *config.Config) {
			c.Optimizer.LR, c.Optimizer.ClipNorm, c.Optimizer.Decay = 1e-3, 2, "cosine"
		},
	} {
		all, err := ParseArms(name)
		got, failed := config.Default("debug")
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		expected := got
		want(&expected)
		if err := errors.Join(all[0].apply(&got), got.Validate(2)); err != nil || !reflect.DeepEqual(got, expected) || all[0].Name != name {
			t.Errorf("%s is %s, its configuration\n%+v\nwant\n%+v, %v", name, all[0].Name, got, expected, err)
		}
	}
	for word := range shortWords {
		if err := (Arm{precision: "bf16", words: []string{word}}).apply(new(config.Config)); err != nil {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// Mistakes in names are found when they are read, and arms without effect before the first run.
func TestArmErrors(t *testing.T) {
	for list, want := range map[string]string{
		"":                               "no name",
		"bf16,,mxfp8":                    "no name",
		"bf16,mxfp8+e4m2":                "nor one of 128x128-gradients, b200",
		"bf16,bf16+optimizer.lr=../1":    "neither a setting",
		"bf16,../mxfp8":                  `"../mxfp8"`,
		"bf16,bf16+optimizer.lr=small":   `optimizer.lr takes no "small"`,
		"bf16,bf16+seq=64":               "all arms have the same seq",
		"bf16,none.toml":                 "none.toml",
		"bf16,bf16":                      "bf16 and bf16 are the same run",
		"bf16,bf16+e5m2":                 "e5m2 changes nothing",
		"bf16,mxfp8+no-rht":              "no-rht changes nothing",
		"bf16,mxfp8+floor+ceil":          "floor changes nothing",
		"bf16,bf16+optimizer.eps=0.0001": "optimizer.eps=0.0001 changes nothing",
	} {
		all, err := ParseArms(list)
		if err == nil {
			c := tiny(t, "", 10, "bf16")
			c.Arms, c.Config.Optimizer.Eps = all, 1e-4
			err = c.checkArms()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", list, err, want)
		}
	}
}

// The schedule is whole whatever the length of the run.
func TestDefaults(t *testing.T) {
	for _, from := range []func(string, int) (config.Config, error){Default, Quick} {
		for _, steps := range []int{1, 2, 10, 100, 1500, 10000} {
			cfg, err := from("debug", steps)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Precision = "bf16"
			if err := cfg.Validate(8); err != nil || cfg.Steps != steps {
				t.Errorf("%d steps: %d, %v", steps, cfg.Steps, err)
			}
			if lr := cfg.Optimizer.At(steps/2, steps); steps >= 10 && (lr != cfg.Optimizer.LR || cfg.Optimizer.At(steps-1, steps) > lr/2) {
				t.Errorf("%d steps: half of them has a rate of %g, the last one %g", steps, lr, cfg.Optimizer.At(steps-1, steps))
			}
		}
	}
	if long, err := Default("300K", 0); err != nil || long.Optimizer.LR != 8e-3 {
		t.Errorf("a flavor with 20 tokens per parameter trains at %g, %v", long.Optimizer.LR, err)
	}
}
