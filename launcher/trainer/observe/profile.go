package observe

import (
	"cmp"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
	"spmoe/tensor/profile"
)

// Profiler sums the times of the steps of one rank.
type Profiler struct {
	Timer *profile.Timer
	cold  bool       // no step was made yet
	all   profileSum // since the first step
	lap   profileSum // since the last lap
}

// profileSum is the time of some steps.
type profileSum struct {
	steps int
	times profile.Times
}

func (m *profileSum) add(times *profile.Times) {
	m.steps++
	m.times.Add(times)
}

// NewProfiler measures with the given clock, and with the time that this rank has waited so far,
// except for messages.
func NewProfiler(now, waited func() time.Duration) *Profiler {
	return &Profiler{Timer: profile.NewTimer(now, waited), cold: true}
}

// After ends a step. The time that observers spent inside it is in family Rest and is excluded.
func (p *Profiler) After(spent time.Duration) {
	times := p.Timer.Stop()
	times[profile.Rest] = max(times[profile.Rest]-spent, 0)
	if !p.cold {
		p.all.add(&times)
		p.lap.add(&times)
	}
	p.cold = false
}

// Gather returns the profile of all ranks. It is collective.
func (p *Profiler) Gather(c *collective.Comm) (events.Profile, error) { return p.all.gather(c) }

// gatherLap is gather for the steps since the last gatherLap.
func (p *Profiler) gatherLap(c *collective.Comm) (events.Profile, error) {
	lap := p.lap
	p.lap = profileSum{}
	if lap.steps == 0 { // on all ranks
		return events.Profile{}, nil
	}
	return lap.gather(c)
}

func (m *profileSum) gather(c *collective.Comm) (events.Profile, error) {
	mine := make([]int64, profile.Families)
	for f, d := range m.times {
		mine[f] = int64(d) / int64(max(m.steps, 1))
	}
	all := make([]int64, len(mine)*c.Size())
	if err := collective.AllGather(c, all, mine); err != nil {
		return events.Profile{}, err
	}
	return Summarize(slices.Collect(slices.Chunk(all, len(mine))), m.steps), nil
}

// idle returns the time that a rank has waited.
func idle(times []int64) int64 { return times[profile.Waiting] + times[profile.Messages] }

// Summarize computes a profile from the ranks' times per step, in ns by family.
func Summarize(ranks [][]int64, steps int) events.Profile {
	all := events.Profile{Steps: steps, Ranks: len(ranks), Step: events.FamilyTime{Name: "step"}}
	for r, times := range ranks {
		if idle(times) < idle(ranks[all.Slowest]) {
			all.Slowest = r
		}
	}
	for f := range profile.Families {
		var sum int64
		t := events.FamilyTime{Name: profile.Family(f).String(), Slowest: time.Duration(ranks[all.Slowest][f])}
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
	slices.SortStableFunc(all.Families, func(a, b events.FamilyTime) int { return cmp.Compare(b.Mean, a.Mean) })
	return all
}
