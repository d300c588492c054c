package trainer

import (
	"reflect"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/tensor/profile"
)

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
