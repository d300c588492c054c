package bench

import (
	"slices"
	"testing"
	"time"
)

// TestMeasure: the operands are prepared once, every side is run in every round, and shares are
// those of the rates measured.
func TestMeasure(t *testing.T) {
	var prepared, runs, baseRuns int
	asked := []time.Duration{}
	spin := func(count *int, d time.Duration) func(s *suite) func() {
		return func(*suite) func() {
			prepared++
			return func() {
				*count++
				for begin := time.Now(); time.Since(begin) < d; {
				}
			}
		}
	}
	s := newSuite()
	k := kernel{
		name: "spin", shape: "1x2x3", work: 5,
		limit: limit{"a made-up limit", "GFLOP/s", func(*suite) Rate {
			return func(d time.Duration) float64 {
				asked = append(asked, d)
				return 1e9
			}
		}},
		prepare: spin(&runs, 50*time.Microsecond),
		inBF16:  &kernel{work: 10, prepare: spin(&baseRuns, 200*time.Microsecond)},
	}
	r := effort{rounds: 3, sample: time.Millisecond}.measure(s, k)
	if r.Name != "spin" || r.Shape != "1x2x3" || r.Unit != "GFLOP/s" || r.Bound != "a made-up limit" || r.Limit != 1e9 {
		t.Errorf("%+v does not describe the kernel", r)
	}
	if want := []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}; !slices.Equal(asked, want) {
		t.Errorf("the limit was asked for %v, want %v", asked, want)
	}
	if prepared != 2 || runs < 4 || baseRuns < 4 {
		t.Errorf("%d preparations, %d and %d runs in a warm-up and 3 rounds", prepared, runs, baseRuns)
	}
	if r.Value <= 0 || r.Value > 5/50e-6 || r.Share != r.Value/1e9 {
		t.Errorf("value %g, share %g: 5 units in at least 50 µs, against 1e9", r.Value, r.Share)
	}
}

// TestResult: medians of rates and of their ratios, round by round; against BF16 calls compare, not
// the units in which each side's work is counted.
func TestResult(t *testing.T) {
	k := kernel{name: "n", shape: "s", work: 2, limit: limit{name: "l", unit: "GB/s"}}
	taken := [][]float64{{10, 20, 40}, {5, 8, 10}, {1, 4, 10}}
	want := Result{Name: "n", Shape: "s", Value: 8, Unit: "GB/s", Limit: 20, Share: 0.4, Bound: "l"}
	if got := k.result(taken[:2]); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	k.inBF16 = &kernel{work: 4}
	want.OverBF16 = 4 // 2 times the units a second, of which a call has half as many
	if got := k.result(taken); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
