package convergence

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/trainer/config"
)

func TestParseRecipe(t *testing.T) {
	for name, c := range map[string]struct {
		canonical string
		want      func(*config.Config)
	}{
		"bf16":        {"bf16", func(c *config.Config) {}},
		"mxfp8":       {"mxfp8", func(c *config.Config) { c.Precision = "mxfp8" }},
		"mxfp8+e5m2":  {"mxfp8+e5m2", func(c *config.Config) { c.Precision, c.MX.Gradient = "mxfp8", "e5m2" }},
		"mxint8+even": {"mxint8+even", func(c *config.Config) { c.Precision, c.MX.Scale = "mxint8", "even" }},
		"nvfp4+no-2d+no-rht": {"nvfp4+no-rht+no-2d", func(c *config.Config) {
			c.Precision, c.NVFP4.RHT, c.NVFP4.Squares = "nvfp4", false, false
		}},
		"bf16+null":         {"bf16+null", func(c *config.Config) { c.Optimizer.LR = 0x1.89374ep-09 }}, // 3e-3 is 0x1.89374cp-09 in FP32
		"fp8-block+pow2":    {"fp8-block+pow2", func(c *config.Config) { c.Precision, c.FP8.Scale = "fp8-block", "pow2" }},
		"bf16+h100":         {"bf16+h100", func(c *config.Config) { c.Sum = "h100" }},
		"fp8-block+h100":    {"fp8-block+h100", func(c *config.Config) { c.Precision, c.Sum = "fp8-block", "h100" }},
		"nvfp4+exact":       {"nvfp4+exact", func(c *config.Config) { c.Precision, c.Sum = "nvfp4", "exact" }},
		"bf16+muon":         {"bf16+muon", func(c *config.Config) { c.Optimizer.Name = "muon" }},
		"bf16+bf16-moments": {"bf16+bf16-moments", func(c *config.Config) { c.Optimizer.Moments = "bf16" }},
		"mxfp4-e2m1+stochastic+wgrad-only+rht": {"mxfp4-e2m1+wgrad-only+rht+stochastic", func(c *config.Config) {
			c.Precision, c.MXFP4.Products, c.MXFP4.Hadamard, c.MXFP4.Stochastic = "mxfp4-e2m1", "wgrad", "signs", true
		}},
		"mxfp4-e2m1+hadamard": {"mxfp4-e2m1+hadamard", func(c *config.Config) { c.Precision, c.MXFP4.Hadamard = "mxfp4-e2m1", "plain" }},
		"bf16+standard":       {"bf16+standard", func(c *config.Config) { c.EPExchange = "standard" }},
		"mxfp8-experts+wire":  {"mxfp8-experts+wire", func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8-experts", "mxfp8", "mxfp8" }},
		"mxfp8+wire+floor+e5m2": {"mxfp8+e5m2+floor+wire", func(c *config.Config) {
			c.Precision, c.MX.Gradient, c.MX.Scale, c.EPDispatch, c.EPCombine = "mxfp8", "e5m2", "floor", "mxfp8", "mxfp8"
		}},
		"mxfp8-wgrad-bf16+ceil": {"mxfp8-wgrad-bf16+ceil", func(c *config.Config) { c.Precision, c.MX.Scale = "mxfp8-wgrad-bf16", "ceil" }},
		"mxfp8+standard+e5m2+floor": {"mxfp8+e5m2+floor+standard", func(c *config.Config) {
			c.Precision, c.MX.Gradient, c.MX.Scale, c.EPExchange = "mxfp8", "e5m2", "floor", "standard"
		}},
	} {
		r, err := ParseRecipe(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		want := got
		c.want(&want)
		r.apply(&got)
		a, _ := config.TOML(got)
		b, _ := config.TOML(want)
		if string(a) != string(b) || r.Name != c.canonical || r.About == "" {
			t.Errorf("%s is %s (%s), its configuration\n%s\nwant\n%s", name, r.Name, r.About, a, b)
		}
		if err := got.Validate(2); err != nil {
			t.Errorf("%s cannot be trained: %v", name, err)
		}
	}
}

func TestParseRecipes(t *testing.T) {
	for names, want := range map[string]string{
		"bf16,mxfp8":                 "bf16 mxfp8",
		" fp32 , mxfp8+floor,mxint8": "fp32 mxfp8+floor mxint8",
	} {
		all, err := ParseRecipes(names)
		var got []string
		for _, r := range all {
			got = append(got, r.Name)
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: %s, %v; want %s", names, got, err, want)
		}
	}
}

func TestRecipeErrors(t *testing.T) {
	modifiers := "e5m2, floor, ceil, even, wire, standard, h100, h100-nopromotion, b200, bf16-moments, muon, null"
	for names, want := range map[string][]string{
		"bf16":                                   {`"bf16"`, "baseline", "bf16,mxfp8"},
		"":                                       {"no name"},
		"bf16,,mxfp8":                            {"no name"},
		"bf16,fp8":                               {`"fp8"`, "mxfp8", "mxint8", modifiers},
		"bf16,mxfp8+e4m2":                        {`"e4m2"`, modifiers},
		"bf16,mxfp8+":                            {`""`, "e5m2"},
		"bf16,mxfp8,mxfp8":                       {"mxfp8 is given twice"},
		"bf16,mxfp8+floor+e5m2,mxfp8+e5m2+floor": {"mxfp8+e5m2+floor is given twice"},
		"bf16,mxfp8+floor+ceil":                  {"floor and ceil", "scale rule"},
		"bf16,mxfp8+wire+standard":               {"wire and standard", "exchange"},
		"bf16,mxfp8+e5m2+e5m2":                   {"e5m2 is given twice"},
		"bf16,bf16+e5m2":                         {"bf16", "quantizes nothing"},
		"bf16,nvfp4+b200+exact":                  {"b200 and exact", "sum"},
		"bf16,mxfp8+no-rht":                      {"no-rht has no effect on mxfp8"},
		"bf16,mxfp4-e2m1+hadamard+rht":           {"hadamard and rht", "transform"},
		"bf16,mxfp4-e2m1+dgrad-only+wgrad-only":  {"dgrad-only and wgrad-only", "products"},
		"bf16,mxfp8+wgrad-only":                  {"wgrad-only has no effect on mxfp8"},
		"bf16,none.toml":                         {"none.toml", "launcher recipe nvfp4 prints one"},
	} {
		_, err := ParseRecipes(names)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q in it", names, err, w)
			}
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
			if err := cfg.Validate(8); err != nil {
				t.Errorf("%d steps: %v", steps, err)
			}
			if cfg.Steps != steps || steps < 100 {
				continue
			}
			var warming, peak, decaying int
			for step := range steps {
				switch lr := cfg.Optimizer.At(step, steps); {
				case lr == cfg.Optimizer.LR:
					peak++
				case step <= steps/2:
					warming++
				default:
					decaying++
				}
			}
			within := func(n int, least, most float64) bool {
				return float64(n) >= least*float64(steps) && float64(n) <= most*float64(steps)
			}
			if !within(warming, 0.02, 0.12) || !within(peak, 0.3, 0.75) || !within(decaying, 0.15, 0.6) {
				t.Errorf("%d steps: %d of warm-up, %d at the peak, %d of decay", steps, warming, peak, decaying)
			}
			if !within(cfg.SaveEvery.Steps(), 0, 0.2) || !within(cfg.EvalEvery, 0, 0.2) || !within(cfg.RecordEvery, 0, 0.1) {
				t.Errorf("%d steps: saves every %v, evaluates every %d, records every %d", steps, cfg.SaveEvery, cfg.EvalEvery, cfg.RecordEvery)
			}
		}
		if _, err := from("debbug", 0); err == nil || !strings.Contains(err.Error(), "debug") {
			t.Errorf("an unknown flavor gives %v", err)
		}
	}
	long, err := Default("debug", 0)
	if err != nil || long.Steps != DefaultSteps {
		t.Errorf("%d steps, %v", long.Steps, err)
	}
	if !slices.Equal(strings.Split(long.Precision, ","), []string{"bf16", "mxfp8"}) {
		t.Errorf("compares %s", long.Precision)
	}
}

// A null arm has the first loss of its baseline, then other roundings: losses that differ, but
// hardly.
func TestNull(t *testing.T) {
	c := tiny(t, text(t), 20, "bf16,bf16+null")
	c.Design = design.Fixed(0.005, 1)
	r := finish(t, c)
	base, null := r.Arms[0].Runs[0], r.Arms[1].Runs[0]
	if a, b := base.Log.Steps[0].Loss, null.Log.Steps[0].Loss; a != b {
		t.Errorf("the first losses are %v and %v", a, b)
	}
	if d := math.Abs(float64(null.Train/base.Train) - 1); d == 0 || d > 1e-3 {
		t.Errorf("the final losses are %v and %v: want a difference of at most 0.1 %%", base.Train, null.Train)
	}
}
