package trainer

// Rates: tokens and FLOPs per second, and the share of the machine's peak. The time that is left
// follows from the last steps, because a machine may become slower or faster.

import (
	"sync"
	"time"

	"spmoe/launcher/system"
)

// meter computes rates from steps. pause excludes the time between steps.
type meter struct {
	cfg     Config
	peak    float64 // of the machine, FLOP/s
	flops   float64 // per token
	total   int64   // memory of the machine
	now     func() time.Time
	began   time.Time
	lapped  time.Time
	lapStep int
	last    time.Time // end of the last step
	recent  stepTimes

	mu       sync.Mutex
	underway underway // other goroutines read it, with mu
}

// underway is the step that a run would stop after if it was asked to now.
type underway struct {
	step  int // 0 before the first
	begin time.Time
	usual time.Duration // of a step; 0: not known yet
}

func newMeter(cfg Config, peak float64) *meter {
	return &meter{cfg: cfg, peak: peak, flops: cfg.Model.FLOPsPerToken(cfg.Seq), total: system.ReadMemory().Total, now: time.Now}
}

func (m *meter) start(p progress) {
	m.began = m.now()
	m.lapped, m.last, m.lapStep = m.began, m.began, p.Step
}

// pause excludes d from all rates.
func (m *meter) pause(d time.Duration) {
	m.began, m.lapped, m.last = m.began.Add(d), m.lapped.Add(d), m.last.Add(d)
}

// begin says that a step begins, or that a request to stop would now end the run after that step.
func (m *meter) begin(step int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.underway = underway{step, m.now(), m.recent.mean()}
}

// stopping returns when a run that has made some steps stops if it is asked to now.
func (m *meter) stopping(made, steps int) Stopping {
	m.mu.Lock()
	u := m.underway
	m.mu.Unlock()
	if u.step > steps {
		return Stopping{Step: steps, Done: true}
	}
	s := Stopping{Step: max(u.step, made+1)}
	if u.usual > 0 {
		s.About = max(u.usual-m.now().Sub(u.begin), 1)
	}
	return s
}

// lap adds the rates since the last lap to a step's report.
func (m *meter) lap(s Step) Step {
	now := m.now()
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
	s.ETA = m.recent.mean() * time.Duration(s.Steps-s.Step)
	s.Memory = system.Resident()
	s.MemoryShare = float64(s.Memory) / float64(max(m.total, 1))
	return s
}

// show counts a step. It reports the step if it is to be logged. Otherwise a watcher may look at
// it.
func (m *meter) show(to Reporter, s Step, last bool) {
	now := m.now()
	m.recent.add(now.Sub(m.last))
	m.last = now
	if s.Step%m.cfg.LogEvery == 0 || s.Step == 1 || last || s.Skipped {
		to.Step(m.lap(s))
	} else if w, ok := to.(Watcher); ok && w.Wants() {
		w.Between(m.rates(s, now))
	}
}

// stepTimes holds the times of the last steps.
type stepTimes struct {
	times [32]time.Duration
	count int // of all steps
}

func (t *stepTimes) add(d time.Duration) {
	t.times[t.count%len(t.times)] = d
	t.count++
}

// mean returns the mean time of the last steps; 0 if there are none.
func (t *stepTimes) mean() time.Duration {
	n := min(t.count, len(t.times))
	if n == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range t.times[:n] {
		sum += d
	}
	return sum / time.Duration(n)
}
