package trainer

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

func TestChanges(t *testing.T) {
	saved, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string // changes, meaningful ones with an exclamation mark, or the error
	}{
		"none":        {func(*config.Config) {}, ""},
		"more steps":  {func(c *config.Config) { c.Steps = saved.Steps + 10 }, fmt.Sprintf("steps: %d -> %d", saved.Steps, saved.Steps+10)},
		"fewer steps": {func(c *config.Config) { c.Steps = saved.Steps - 10 }, fmt.Sprintf("!steps: %d -> %d", saved.Steps, saved.Steps-10)},
		"more steps of one schedule": {
			func(c *config.Config) { c.Steps, c.ScheduleSteps = saved.Steps+10, saved.Steps },
			fmt.Sprintf("steps: %d -> %d, schedule_steps: 0 -> %d", saved.Steps, saved.Steps+10, saved.Steps),
		},
		"a shorter schedule": {func(c *config.Config) { c.ScheduleSteps = saved.Steps - 10 }, fmt.Sprintf("!schedule_steps: 0 -> %d", saved.Steps-10)},
		"deep":               {func(c *config.Config) { c.Model.YaRN.Factor, c.MX.Gradient = 4, "e5m2" }, `!mx.gradient: "" -> e5m2, !model.yarn.factor: 0 -> 4`},
		"seed":               {func(c *config.Config) { c.Seed = 9 }, "seed is 1 in run/step-2, not 9: a resumed run cannot change it: leave seed out"},
		"guard and record":   {func(c *config.Config) { c.Guard.Skips, c.RecordEvery = 7, 3 }, "record_every: 0 -> 3, guard.skips: 5 -> 7"},
	} {
		cfg := saved
		c.change(&cfg)
		all, err := config.Changes(saved, cfg, "run/step-2")
		var got []string
		for _, one := range all {
			text := one.String()
			if one.Meaningful {
				text = "!" + text
			}
			got = append(got, text)
		}
		text := strings.Join(got, ", ")
		if err != nil {
			text = err.Error()
		}
		if !strings.HasPrefix(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// A run makes the first steps of a longer schedule, and goes on after the end of a shorter one with
// its last rate.
func TestLearningRate(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Steps, cfg.Optimizer.Warmup, cfg.Optimizer.DecayFrac, cfg.Optimizer.MinFactor = 100, 10, 0.5, 0
	part, longer := cfg, cfg
	part.Steps, part.ScheduleSteps = 60, 100
	longer.Steps, longer.ScheduleSteps = 200, 100
	last := cfg.LearningRate(99)
	if !(last > 0) || last > cfg.Optimizer.LR/40 {
		t.Errorf("the last rate is %g", last)
	}
	for step := range 200 {
		want := last
		if step < 100 {
			want = cfg.Optimizer.At(step, 100)
		}
		if a, b := part.LearningRate(step), longer.LearningRate(step); a != want || b != want {
			t.Errorf("step %d: %g and %g, want %g", step, a, b, want)
		}
	}
}
