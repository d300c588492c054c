package optim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Schedule is a learning rate with a linear warm-up, a constant part, and a decay at the end.
type Schedule struct {
	LR        float64 `toml:"lr" flag:"yes" help:"peak learning rate"`
	Warmup    int     `toml:"warmup" help:"steps of linear warm-up; the default is cut to a tenth of --steps, but not below 20"`
	DecayFrac float64 `toml:"decay_frac" help:"share of the steps at the end over which the rate decays"`
	Decay     string  `toml:"decay" help:"shape of the decay: linear, sqrt or cosine"`
	MinFactor float64 `toml:"min_factor" help:"final learning rate as a share of the peak"`
}

var decays = map[string]func(progress float64) float64{
	"linear": func(p float64) float64 { return 1 - p },
	"sqrt":   func(p float64) float64 { return 1 - math.Sqrt(p) },
	"cosine": func(p float64) float64 { return (1 + math.Cos(math.Pi*p)) / 2 },
}

// Validate returns an error with every invalid field.
func (s Schedule) Validate() error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(s.LR > 0 && !math.IsInf(s.LR, 0), "optimizer.lr is %g: give a positive number", s.LR)
	check(s.Warmup >= 0, "optimizer.warmup is %d: give 0 or more steps", s.Warmup)
	check(s.DecayFrac >= 0 && s.DecayFrac <= 1, "optimizer.decay_frac is %g: give a share from 0 to 1", s.DecayFrac)
	check(s.MinFactor >= 0 && s.MinFactor <= 1, "optimizer.min_factor is %g: give a share from 0 to 1", s.MinFactor)
	check(decays[s.Decay] != nil, "optimizer.decay is %q: use %s", s.Decay, strings.Join(slices.Sorted(maps.Keys(decays)), ", "))
	if len(bad) > 0 {
		return fmt.Errorf("invalid learning-rate schedule:\n  %s", strings.Join(bad, "\n  "))
	}
	return nil
}

// At returns the learning rate of a step, counted from 0, in a run of steps steps.
//
// The first step already has LR/Warmup. The decay ends one step after the run, so that the last
// step still learns. A warm-up longer than the run is cut to the run.
func (s Schedule) At(step, steps int) float64 {
	warmup := min(s.Warmup, steps)
	decay := min(int(math.Round(s.DecayFrac*float64(steps))), steps-warmup)
	switch begin := steps + 1 - decay; {
	case step < warmup:
		return s.LR * float64(step+1) / float64(warmup)
	case decay == 0 || step+1 <= begin:
		return s.LR
	default:
		left := decays[s.Decay](min(float64(step+1-begin)/float64(decay), 1))
		return s.LR * (s.MinFactor + float64((1-s.MinFactor)*left)) // not fused on any CPU
	}
}
