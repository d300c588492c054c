package trainer

// Rates: tokens and FLOPs per second, and the share of the machine's peak.

import (
	"time"

	"spmoe/launcher/system"
)

// meter computes rates from steps. pause excludes the time between steps.
type meter struct {
	cfg     Config
	peak    float64 // of the machine, FLOP/s
	flops   float64 // per token
	total   int64   // memory of the machine
	began   time.Time
	from    int // the step at began
	lapped  time.Time
	lapStep int
}

func newMeter(cfg Config, peak float64) *meter {
	return &meter{cfg: cfg, peak: peak, flops: cfg.Model.FLOPsPerToken(cfg.Seq), total: system.ReadMemory().Total}
}

func (m *meter) start(p progress) {
	m.began = time.Now()
	m.lapped, m.from, m.lapStep = m.began, p.Step, p.Step
}

// pause excludes d from all rates.
func (m *meter) pause(d time.Duration) { m.began, m.lapped = m.began.Add(d), m.lapped.Add(d) }

// lap adds the rates since the last lap to a step's report.
func (m *meter) lap(s Step) Step {
	now := time.Now()
	s = m.rates(s, now)
	m.lapped, m.lapStep = now, s.Step
	return s
}

// rates adds the rates to a step's report without ending a lap.
func (m *meter) rates(s Step, now time.Time) Step {
	tokens := float64(s.Step-m.lapStep) * float64(m.cfg.Batch*m.cfg.Seq)
	s.TokensPerSec = tokens / max(now.Sub(m.lapped).Seconds(), 1e-9)
	s.FLOPS = s.TokensPerSec * m.flops
	s.MFU = s.FLOPS / m.peak
	s.Elapsed = now.Sub(m.began)
	s.ETA = time.Duration(float64(s.Elapsed) / float64(s.Step-m.from) * float64(s.Steps-s.Step))
	s.Memory = system.Resident()
	s.MemoryShare = float64(s.Memory) / float64(max(m.total, 1))
	return s
}

// show reports a step if it is to be logged. Otherwise a watcher may look at it.
func (m *meter) show(to Reporter, s Step, last bool) {
	if s.Step%m.cfg.LogEvery == 0 || s.Step == 1 || last || s.Skipped {
		to.Step(m.lap(s))
	} else if w, ok := to.(Watcher); ok && w.Wants() {
		w.Between(m.rates(s, time.Now()))
	}
}
