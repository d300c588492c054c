package observe

// Rates: tokens and FLOPs per second, and the share of the machine's peak. The time that is left
// follows from the last steps, because a machine may become slower or faster.

import (
	"sync/atomic"
	"time"

	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
)

// Meter computes rates from steps. pause excludes the time between steps.
type Meter struct {
	Cfg     config.Config
	Peak    float64 // of the machine, FLOP/s
	Flops   float64 // per token
	total   int64   // memory of the machine
	Now     func() time.Time
	began   time.Time
	lapped  time.Time
	lapStep int
	last    time.Time // end of the last step
	recent  stepTimes

	// Underway is the step that a run would stop after if it was asked to now; 0 before the first.
	Underway atomic.Int64
}

// NewMeter returns a meter for a machine with this peak, in FLOP/s.
func NewMeter(cfg config.Config, peak float64) *Meter {
	return &Meter{
		Cfg:   cfg,
		Peak:  peak,
		Flops: cfg.Model.FLOPsPerToken(cfg.Seq),
		total: system.ReadMemory().Total,
		Now:   time.Now,
	}
}

// Start begins the time of the next step.
func (m *Meter) Start(p state.Progress) {
	m.began = m.Now()
	m.lapped, m.last, m.lapStep = m.began, m.began, p.Step
}

// Pause excludes d from all rates.
func (m *Meter) Pause(d time.Duration) {
	m.began, m.lapped, m.last = m.began.Add(d), m.lapped.Add(d), m.last.Add(d)
}

// Lap adds the rates since the last lap to a step's report.
func (m *Meter) Lap(s events.Step) events.Step {
	now := m.Now()
	tokens := float64(s.Step-m.lapStep) * float64(m.Cfg.Batch*m.Cfg.Seq)
	s.TokensPerSec = tokens / max(now.Sub(m.lapped).Seconds(), 1e-9)
	s.FLOPS = s.TokensPerSec * m.Flops
	s.MFU = s.FLOPS / m.Peak
	s.Elapsed = now.Sub(m.began)
	s.ETA = m.recent.mean() * time.Duration(s.Steps-s.Step)
	s.Memory = system.Resident()
	s.MemoryShare = float64(s.Memory) / float64(max(m.total, 1))
	m.lapped, m.lapStep = now, s.Step
	return s
}

// Show counts a step, and reports it if it is to be logged.
func (m *Meter) Show(to events.Reporter, s events.Step, last bool) {
	now := m.Now()
	m.recent.add(now.Sub(m.last))
	m.last = now
	if s.Step%m.Cfg.LogEvery == 0 || s.Step == 1 || last || s.Skipped {
		to.Step(m.Lap(s))
	}
}

// stepTimes are the times of the last steps.
type stepTimes []time.Duration

func (t *stepTimes) add(d time.Duration) { *t = append((*t)[max(0, len(*t)-31):], d) }

// mean returns the mean time of the last steps; 0 if there are none.
func (t stepTimes) mean() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum / time.Duration(max(len(t), 1))
}
