package bench

import (
	"testing"
	"time"
)

// TestMeasure: a kernel is run as often as its calibration says, and its share is that of its own limit.
func TestMeasure(t *testing.T) {
	runs := 0
	asked := []time.Duration{}
	k := kernel{
		name: "spin", shape: "1x2x3", work: 5,
		limit: limit{"a made-up limit", "GFLOP/s", func(d time.Duration) float64 {
			asked = append(asked, d)
			return 1e9
		}},
		run: func() {
			runs++
			for begin := time.Now(); time.Since(begin) < 50*time.Microsecond; {
			}
		},
	}
	r := effort{rounds: 3, sample: time.Millisecond}.measure(k)
	if r.Name != "spin" || r.Shape != "1x2x3" || r.Unit != "GFLOP/s" || r.Bound != "a made-up limit" || r.Limit != 1e9 {
		t.Errorf("%+v does not describe the kernel", r)
	}
	if len(asked) != 3 || runs < 3 {
		t.Errorf("%d measurements of the limit and %d runs in 3 rounds", len(asked), runs)
	}
	if r.Value <= 0 || r.Value > 5/50e-6 || r.Share != r.Value/1e9 {
		t.Errorf("value %g, share %g: 5 units in at least 50 µs, against 1e9", r.Value, r.Share)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 100}, 3.5}} {
		if got := median(c.x); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.x, got, c.want)
		}
	}
}

// TestKernelsAreBuilt runs every kernel of the quick list once, on operands that are checked by the packages they belong to.
func TestKernelsAreBuilt(t *testing.T) {
	seen := map[string]bool{}
	s := newSuite()
	for _, make := range s.kernels(true) {
		mark := s.ex.Mark()
		k := make()
		k.run()
		s.ex.Release(mark)
		if k.work <= 0 || seen[k.name+k.shape] {
			t.Errorf("%s %s: work %g, seen %v", k.name, k.shape, k.work, seen[k.name+k.shape])
		}
		seen[k.name+k.shape] = true
	}
}
