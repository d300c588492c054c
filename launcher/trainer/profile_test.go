package trainer

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/tensor/profile"
)

// What a run reports as its profile: every family that the precision has, of warm steps only, and
// all of the step's time.
func TestProfile(t *testing.T) {
	t.Parallel()
	for precision, want := range map[string][]string{
		"bf16":          {"bf16 forward", "bf16 dgrad", "bf16 wgrad", "bf16 grouped forward", "bf16 grouped dgrad", "bf16 grouped wgrad"},
		"mxfp8-experts": {"bf16 forward", "bf16 wgrad", "mx grouped forward", "mx grouped dgrad", "mx grouped wgrad", "quantize"},
	} {
		cfg := tiny(t, func(c *config.Config) { c.Precision, c.EvalEvery, c.SaveEvery = precision, 2, 3 })
		r := &reports{}
		job, err := Prepare(cfg, 2, "", r)
		if err != nil {
			t.Fatal(err)
		}
		job.Profile = true
		begin := time.Now()
		if err := job.Run(t.Context(), spmd.Goroutines{N: job.ranks}); err != nil {
			t.Fatal(err)
		}
		whole := time.Since(begin)
		if len(r.prof) != 1 {
			t.Fatalf("%s: %d profiles were reported", precision, len(r.prof))
		}
		p := r.prof[0]
		if p.Steps != cfg.Steps-1 || p.Ranks != 2 || p.Slowest < 0 || p.Slowest > 1 {
			t.Errorf("%s: %d steps of %d ranks, slowest %d", precision, p.Steps, p.Ranks, p.Slowest)
		}
		var names []string
		var sum events.FamilyTime
		for i, f := range p.Families {
			names = append(names, f.Name)
			sum.Mean, sum.Slowest = sum.Mean+f.Mean, sum.Slowest+f.Slowest
			if i > 0 && f.Mean > p.Families[i-1].Mean {
				t.Errorf("%s: %s took longer than what stands above it", precision, f.Name)
			}
		}
		want = append(want, "fp32 forward", "attention", "row operations", "router", "loss", "exchange", "collectives", "optimizer", "waiting", "data loading", "rest")
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s: no %s among %q", precision, name, names)
			}
		}
		if sum.Mean != p.Step.Mean || sum.Slowest != p.Step.Slowest || p.Step.Mean <= 0 {
			t.Errorf("%s: the families take %v, the step %v", precision, sum, p.Step)
		}
		if all := time.Duration(p.Steps) * p.Step.Slowest; all > whole {
			t.Errorf("%s: %d steps took %v of the run's %v", precision, p.Steps, all, whole)
		}
		if i := slices.Index(r.events, "profile 3"); i < slices.Index(r.events, "saved 4") {
			t.Errorf("%s: the events are %q, want the profile after the last step", precision, r.events)
		}
	}
}

// The first step is left out, and the time between steps; what is left is divided by the steps that
// count.
func TestProfiler(t *testing.T) {
	err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
		var now time.Duration
		p := observe.NewProfiler(func() time.Duration { return now }, observe.Links{c}.Met)
		for _, step := range []time.Duration{1000, 30, 50} {
			p.Timer.Start()
			before := p.Timer.Switch(profile.Loss)
			now += step
			p.Timer.Switch(before)
			now += 8
			p.After(7)
			now += 500
		}
		got, err := p.Gather(c)
		want := events.Profile{
			Steps: 2, Ranks: 1, Step: events.FamilyTime{Name: "step", Mean: 41, Slowest: 41, Ranks: nil},
			Families: []events.FamilyTime{{Name: "loss", Mean: 40, Slowest: 40, Ranks: []time.Duration{40}}, {Name: "rest", Mean: 1, Slowest: 1, Ranks: []time.Duration{1}}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("profile %+v, want %+v", got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
