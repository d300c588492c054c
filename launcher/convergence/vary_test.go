package convergence

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

// topK and rate are settings with their values.
func topK(values ...int) (list []Setting) {
	for _, k := range values {
		list = append(list, Setting{"model.top-k", strconv.Itoa(k), func(c *config.Config) { c.Model.TopK = k }})
	}
	return list
}

func rate(values ...float64) (list []Setting) {
	for _, v := range values {
		list = append(list, Setting{"optimizer.lr", strconv.FormatFloat(v, 'g', -1, 64), func(c *config.Config) { c.Optimizer.LR = v }})
	}
	return list
}

// The arms are all combinations, the baseline first. Names are unique and say what differs.
func TestVaryRecipes(t *testing.T) {
	other := []Setting{{"other.top-k", "1", func(*config.Config) {}}}
	for _, c := range []struct {
		precisions string
		lists      [][]Setting
		want       string
	}{
		{"bf16", [][]Setting{rate(0.1, 0.2)}, "lr=0.1 lr=0.2"},
		{"bf16", [][]Setting{rate(0.1, 0.2), topK(2, 4)}, "lr=0.1+top-k=2 lr=0.1+top-k=4 lr=0.2+top-k=2 lr=0.2+top-k=4"},
		{"bf16,mxfp8", [][]Setting{topK(2, 4)}, "bf16+top-k=2 bf16+top-k=4 mxfp8+top-k=2 mxfp8+top-k=4"},
		{"bf16", [][]Setting{topK(2), other}, "model.top-k=2+other.top-k=1"},
	} {
		all, err := VaryRecipes(c.precisions, c.lists)
		var names []string
		for _, r := range all {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s: arms %q, want %q, %v", c.precisions, got, c.want, err)
		}
	}
}

// Every arm has its settings.
func TestVariedConfigs(t *testing.T) {
	recipes, err := VaryRecipes("bf16,mxfp8", [][]Setting{rate(0.1, 0.2), topK(2, 4)})
	if err != nil {
		t.Fatal(err)
	}
	c := tiny(t, "", 10, "bf16,mxfp8")
	c.Recipes, c.Varied = recipes, []string{"both"}
	var got []string
	for _, r := range recipes {
		cfg := c.config(r, 1)
		got = append(got, strings.Join([]string{cfg.Precision, strconv.FormatFloat(cfg.Optimizer.LR, 'g', -1, 64), strconv.Itoa(cfg.Model.TopK)}, " "))
	}
	want := []string{"bf16 0.1 2", "bf16 0.1 4", "bf16 0.2 2", "bf16 0.2 4", "mxfp8 0.1 2", "mxfp8 0.1 4", "mxfp8 0.2 2", "mxfp8 0.2 4"}
	if !slices.Equal(got, want) {
		t.Errorf("arms %q, want %q", got, want)
	}
	if err := c.checkArms(); err != nil {
		t.Error(err)
	}
}

// Arms that are the same run are refused: equal values, and settings that a precision ignores.
func TestSameArms(t *testing.T) {
	gradient := func(formats ...string) (list []Setting) {
		for _, f := range formats {
			list = append(list, Setting{"mx.gradient", f, func(c *config.Config) { c.MX.Gradient = f }})
		}
		return list
	}
	for _, c := range []struct {
		precision string
		list      []Setting
		same      bool
	}{
		{"bf16", rate(0.1, 0.1), true}, {"bf16", rate(0.1, 0.2), false}, {"bf16", gradient("e4m3", "e5m2"), true}, {"mxfp8", gradient("e4m3", "e5m2"), false},
	} {
		recipes, err := VaryRecipes(c.precision, [][]Setting{c.list})
		if err != nil {
			t.Fatal(err)
		}
		comparison := tiny(t, "", 10, "bf16,mxfp8")
		comparison.Recipes, comparison.Varied = recipes, []string{"one"}
		err = comparison.checkArms()
		if (err != nil) != c.same {
			t.Errorf("%s, %s: %v", c.precision, recipes[1].About, err)
		}
	}
}

// The arm with the lowest loss is named with its verdict; a diverged arm is not the best.
func TestLowest(t *testing.T) {
	arm := func(name, verdict string, diverged bool, losses ...float64) Arm {
		a := Arm{Name: name, Verdict: verdict, HeldOut: &Difference{Mean: losses[0]/2 - 1}}
		for _, l := range losses {
			a.Runs = append(a.Runs, Run{HeldOut: record.Number(l), Diverged: diverged})
		}
		return a
	}
	r := Result{Varied: []string{"lr=1,2,3"}, Arms: []Arm{arm("lr=1", Baseline, false, 2, 2), arm("lr=2", Undecided, false, 1.9, 1.9), arm("lr=3", Different, true, 1, 1)}}
	if got := r.Lowest(); got != "lowest validation loss: lr=2, 1.9000 nats, -5.00 % against the baseline (undecided)" {
		t.Error(got)
	}
	r.Arms = r.Arms[:1]
	if got := r.Lowest(); got != "lowest validation loss: lr=1, 2.0000 nats" {
		t.Error(got)
	}
	if r.Varied = nil; r.Lowest() != "" {
		t.Error("a comparison of precisions names a best arm")
	}
}
