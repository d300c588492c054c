package golden

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

var folders = []string{"deepseek_v3_tiny", "deepseek_v2lite_like", "qwen3_moe_tiny", "glm4_moe_tiny"}

func open(t *testing.T, name string) *Folder {
	t.Helper()
	f, err := Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// tight is some five times what this build is off by in the goldens here; the bounds of check
// have to do for models that nobody has seen.
func tight(l Line) float64 {
	switch {
	case strings.HasPrefix(l.Name, "gradient"):
		return 1e-5
	case l.Rule == elementRule:
		return 6e-6
	}
	return l.Bound
}

func TestCheck(t *testing.T) {
	for _, name := range folders {
		for _, ranks := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				f := open(t, name)
				lines, err := f.Check(ranks)
				if err != nil {
					t.Fatal(err)
				}
				kinds := map[string]int{}
				var worst Line
				for _, l := range lines {
					// The reference has zeros as the gradient of the selection bias, which is no
					// parameter.
					if !l.OK() || !l.Compared() && !strings.HasSuffix(l.Name, "e_score_correction_bias") {
						t.Errorf("%s: %s is %.3g, bound %.3g; %s", l.Name, l.Rule, l.Error, l.Bound, l.Note)
					}
					if l.Error > tight(l) {
						t.Errorf("%s: %s is %.3g, this build is usually within %.3g; %s", l.Name, l.Rule, l.Error, tight(l), l.Note)
					}
					kinds[observed(strings.Fields(l.Name)[0])]++
					if strings.HasPrefix(l.Name, "gradient") && l.Error > worst.Error {
						worst = l
					}
				}
				for _, must := range []string{"layer0_attention", "layer1_topk_index", "layer1_topk_weight", "logits", "loss", "gradient"} {
					if kinds[must] == 0 {
						t.Errorf("%s was not compared", must)
					}
				}
				t.Logf("%d tensors; worst gradient: %s, %.2g", len(lines), worst.Name, worst.Error)
			})
		}
	}
}

func TestReplay(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("np%d", ranks), func(t *testing.T) {
			deviations, err := open(t, "deepseek_v3_tiny").Replay(ranks)
			if err != nil {
				t.Fatal(err)
			}
			if len(deviations) != 40 {
				t.Errorf("%d steps, want 40", len(deviations))
			}
			var worst Deviation
			for i, d := range deviations {
				if !(d.Loss <= 5e-6) || !(d.GradNorm <= 5e-5) {
					t.Errorf("step %d: loss off by %.3g (bound 5e-6), gradient norm by %.3g (bound 5e-5)", i+1, d.Loss, d.GradNorm)
				}
				worst = Deviation{max(worst.Loss, d.Loss), max(worst.GradNorm, d.GradNorm)}
			}
			t.Logf("worst deviation: loss %.2g, gradient norm %.2g", worst.Loss, worst.GradNorm)
		})
	}
}

func TestRanks(t *testing.T) {
	for _, name := range folders {
		f := open(t, name)
		for ranks, want := range map[int]string{0: "-np is 0: give 1", -1: "-np is -1", 1: "", 2: "", 3: "-np 3: 3 ranks do not divide"} {
			if err := f.Ranks(ranks); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %d ranks: error %v, want %q", name, ranks, err, want)
			}
		}
		f.Config.DenseLayers, f.Config.MTPLayers = f.Config.Layers, 0
		if err := f.Ranks(3); err != nil {
			t.Errorf("a dense model on 3 ranks: %v", err)
		}
		if err := f.Ranks(0); err == nil {
			t.Error("a dense model runs on 0 ranks")
		}
	}
}
