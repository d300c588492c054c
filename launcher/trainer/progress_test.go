package trainer

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"spmoe/datasets"
	"spmoe/launcher/record"
)

// A checkpoint's trainer state survives JSON, a loss that is not a number too.
func TestProgress(t *testing.T) {
	in := progress{
		Step: 3, OptimizerSteps: 2, Skipped: 1, Tokens: 96, Loader: datasets.State{Pos: 12, Seed: math.MaxUint64, Seq: 8, Fingerprint: "x"},
		FirstTrain: 0.1, FirstHeldOut: record.Number(math.NaN()), Recent: recent{1.0 / 3, record.Number(math.Inf(1)), -math.MaxFloat64},
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out progress
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(float64(out.FirstHeldOut)) || !math.IsNaN(float64(out.Recent[1])) {
		t.Errorf("%s comes back as %+v", data, out)
	}
	out.FirstHeldOut, in.FirstHeldOut, out.Recent[1], in.Recent[1] = 0, 0, 0, 0
	if !reflect.DeepEqual(in, out) {
		t.Errorf("%+v comes back as %+v", in, out)
	}
	if err := json.Unmarshal([]byte(`{"first_train_loss": "low"}`), &out); err == nil {
		t.Error("text is taken for a loss")
	}
}

func TestRecent(t *testing.T) {
	var l recent
	if !math.IsNaN(l.mean()) {
		t.Errorf("the mean of nothing is %g", l.mean())
	}
	for i := range 25 {
		l.add(float64(i))
		first := max(0, i-9)
		if want := float64(first+i) / 2; l.mean() != want || len(l) != i-first+1 {
			t.Errorf("the mean of the last of 0 to %d is %g of %d, want %g of %d", i, l.mean(), len(l), want, i-first+1)
		}
	}
}

// Rates are means since the line before, and time that is paused for belongs to none.
func TestMeter(t *testing.T) {
	cfg := Config{Batch: 4, Seq: 8}
	m := meter{cfg: cfg, peak: 1e6, flops: 100}
	m.start(progress{Step: 10})
	// The clock is moved back instead of waited for.
	back := func(d time.Duration) { m.began, m.lapped = m.began.Add(-d), m.lapped.Add(-d) }
	near := func(got, want float64) bool { return got <= want && got > 0.5*want }
	back(100 * time.Hour)
	s := m.lap(Step{Step: 110, Steps: 310})
	if want := 100 * 32 / (100 * 3600.0); !near(s.TokensPerSec, want) || !near(s.FLOPS, 100*want) || !near(s.MFU, 1e-4*want) {
		t.Errorf("100 steps of 32 tokens in 100 h: %g tokens/s, want %g; %g FLOP/s, MFU %g", s.TokensPerSec, want, s.FLOPS, s.MFU)
	}
	if s.Elapsed < 100*time.Hour || s.ETA < 2*s.Elapsed-time.Second || s.ETA > 2*s.Elapsed+time.Second {
		t.Errorf("elapsed %v, 200 steps to go in %v, want twice that", s.Elapsed, s.ETA)
	}
	back(110 * time.Hour)
	m.pause(10 * time.Hour)
	s = m.lap(Step{Step: 210, Steps: 310})
	if want := 100 * 32 / (100 * 3600.0); !near(s.TokensPerSec, want) || s.TokensPerSec < 0.99*want {
		t.Errorf("100 steps of 32 tokens in 100 h beside a pause: %g tokens/s, want %g", s.TokensPerSec, want)
	}
}
