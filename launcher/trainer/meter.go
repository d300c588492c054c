package trainer

import (
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/tensor/profile"
)

// totals adds up what the ranks' passes measured; stop is positive if any rank wants to stop.
type totals struct {
	loss, tokens, mtp, mtpTokens, balance, dropped, stop float64
	bytes                                                float64 // that the tokens of an evaluation stand for
}

func (t *totals) add(l moe.Loss) {
	t.loss += l.Sum
	t.tokens += float64(l.Tokens)
	t.mtp += l.MTP
	t.mtpTokens += float64(l.MTPTokens)
	t.balance += l.Balance
	t.dropped += float64(l.Dropped)
}

// means returns the losses a token.
func (t totals) means() (loss, mtp float64) {
	return t.loss / max(t.tokens, 1), t.mtp / max(t.mtpTokens, 1)
}

// sumTotals adds the totals of all ranks.
func (r *rank) sumTotals(t totals) (totals, error) {
	defer r.ex.Enter(r.ex.Enter(profile.Collectives))
	buf := [...]float64{t.loss, t.tokens, t.mtp, t.mtpTokens, t.balance, t.dropped, t.stop, t.bytes}
	if err := collective.AllReduce(r.comm, buf[:], collective.Sum); err != nil {
		return t, fmt.Errorf("summing the loss: %w", err)
	}
	return totals{buf[0], buf[1], buf[2], buf[3], buf[4], buf[5], buf[6], buf[7]}, nil
}

// meter turns steps into rates. Time spent outside steps is taken out by pause.
type meter struct {
	cfg     Config
	peak    float64
	flops   float64 // a token
	total   int64   // memory of the machine
	began   time.Time
	from    int // step at which began was taken
	lapped  time.Time
	lapStep int
}

func newMeter(cfg Config, peak float64) meter {
	return meter{cfg: cfg, peak: peak, flops: cfg.Model.FLOPsPerToken(cfg.Seq), total: system.ReadMemory().Total}
}

func (m *meter) start(p progress) {
	m.began = time.Now()
	m.lapped, m.from, m.lapStep = m.began, p.Step, p.Step
}

// pause leaves d out of all rates.
func (m *meter) pause(d time.Duration) { m.began, m.lapped = m.began.Add(d), m.lapped.Add(d) }

// lap completes a step's report with the rates since the last one.
func (m *meter) lap(s Step) Step {
	now := time.Now()
	s = m.rates(s, now)
	m.lapped, m.lapStep = now, s.Step
	return s
}

// rates completes a step's report without ending a lap.
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
