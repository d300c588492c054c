package trainer

import (
	"cmp"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/tensor/profile"
)

// Profile is the time of an optimizer step by kind of work. It excludes evaluations, checkpoints
// and the first step of a run, which allocates memory.
type Profile struct {
	Steps    int // number of measured steps; 0: there was none after the first
	Ranks    int
	Slowest  int          // the rank that others waited for: it waited least itself
	Step     FamilyTime   // the whole step
	Families []FamilyTime // longest mean first; without kinds that took no time
}

// FamilyTime is the time per step of one kind of work.
type FamilyTime struct {
	Name    string
	Mean    time.Duration // over all ranks
	Slowest time.Duration // of the slowest rank
	Ranks   []time.Duration
}

// profiler sums the times of the steps of one rank. It is an [observer].
type profiler struct {
	timer *profile.Timer
	cold  bool     // no step was made yet
	all   measured // since the first step
	lap   measured // since the last lap
}

// measured is the time of some steps.
type measured struct {
	steps int
	times profile.Times
}

func (m *measured) add(times *profile.Times) {
	m.steps++
	m.times.Add(times)
}

// newProfiler measures with the given clock, and with the time that this rank has waited so far,
// except for messages.
func newProfiler(now, waited func() time.Duration) *profiler {
	return &profiler{timer: profile.NewTimer(now, waited), cold: true}
}

// Before implements [observer].
func (p *profiler) Before(int) { p.timer.Start() }

// After implements [observer]. The time that observers spent inside the step is in family Rest and
// is excluded.
func (p *profiler) After(s finishedStep) error {
	times := p.timer.Stop()
	times[profile.Rest] = max(times[profile.Rest]-s.spent, 0)
	if !p.cold {
		p.all.add(&times)
		p.lap.add(&times)
	}
	p.cold = false
	return nil
}

// forget starts over, with a warm step.
func (p *profiler) forget() { p.cold, p.all = false, measured{} }

// gather returns the profile of all ranks. It is collective.
func (p *profiler) gather(c *collective.Comm) (Profile, error) { return p.all.gather(c) }

// gatherLap is gather for the steps since the last gatherLap.
func (p *profiler) gatherLap(c *collective.Comm) (Profile, error) {
	lap := p.lap
	p.lap = measured{}
	if lap.steps == 0 { // on all ranks
		return Profile{}, nil
	}
	return lap.gather(c)
}

func (m *measured) gather(c *collective.Comm) (Profile, error) {
	mine := make([]int64, profile.Families)
	for f, d := range m.times {
		mine[f] = int64(d) / int64(max(m.steps, 1))
	}
	all := make([]int64, len(mine)*c.Size())
	if err := collective.AllGather(c, all, mine); err != nil {
		return Profile{}, err
	}
	return summarize(slices.Collect(slices.Chunk(all, len(mine))), m.steps), nil
}

// seconds returns the profile by name, as a record holds it.
func (p Profile) seconds() map[string]float64 {
	by := map[string]float64{}
	for _, f := range p.Families {
		by[f.Name] = f.Mean.Seconds()
	}
	return by
}

// idle returns the time that a rank has waited.
func idle(times []int64) int64 { return times[profile.Waiting] + times[profile.Messages] }

// summarize computes a profile from the ranks' times per step, in ns by family.
func summarize(ranks [][]int64, steps int) Profile {
	all := Profile{Steps: steps, Ranks: len(ranks), Step: FamilyTime{Name: "step"}}
	for r, times := range ranks {
		if idle(times) < idle(ranks[all.Slowest]) {
			all.Slowest = r
		}
	}
	for f := range profile.Families {
		var sum int64
		t := FamilyTime{Name: profile.Family(f).String(), Slowest: time.Duration(ranks[all.Slowest][f])}
		for _, times := range ranks {
			sum += times[f]
			t.Ranks = append(t.Ranks, time.Duration(times[f]))
		}
		if sum == 0 {
			continue
		}
		t.Mean = time.Duration(sum / int64(len(ranks)))
		all.Families = append(all.Families, t)
		all.Step.Mean += t.Mean
		all.Step.Slowest += t.Slowest
	}
	slices.SortStableFunc(all.Families, func(a, b FamilyTime) int { return cmp.Compare(b.Mean, a.Mean) })
	return all
}
