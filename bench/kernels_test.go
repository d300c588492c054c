package bench

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKernelsAreBuilt runs every kernel of the quick list once, on operands that are checked by the
// packages they belong to.
func TestKernelsAreBuilt(t *testing.T) {
	seen := map[string]bool{}
	s := newSuite()
	defer s.close()
	for _, k := range kernels(true) {
		mark := s.ex.Mark()
		k.prepare(s)()
		s.ex.Release(mark)
		if k.work <= 0 || seen[k.name+k.shape] {
			t.Errorf("%s %s: work %g, seen %v", k.name, k.shape, k.work, seen[k.name+k.shape])
		}
		seen[k.name+k.shape] = true
		if quantized := strings.HasPrefix(k.name, "mx"); quantized != (k.inBF16 != nil) {
			t.Errorf("%s %s: has a product in BF16 to compare with: %v", k.name, k.shape, k.inBF16 != nil)
		}
	}
}

// BenchmarkShare prints what matters of the kernels on one screen, in half a minute: the rates, the
// shares of the machine's limits and the speed relative to BF16.
func BenchmarkShare(b *testing.B) {
	s := newSuite()
	defer s.close()
	for _, k := range kernels(true) {
		var r Result
		b.Run(k.name+"/"+k.shape, func(b *testing.B) {
			if r.Name == "" { // it runs in turns by itself, whatever b.N is
				r = effort{rounds: 5, sample: 15 * time.Millisecond}.measure(s, k)
			}
			b.ReportMetric(r.Value, r.Unit)
			b.ReportMetric(r.Share, "of-limit")
			if r.OverBF16 > 0 {
				b.ReportMetric(r.OverBF16, "of-bf16")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestMatch: what is asked for is measured, nothing else.
func TestMatch(t *testing.T) {
	var names []string
	err := Kernels(context.Background(), Options{Quick: true, Match: regexp.MustCompile(`^(fp32_gemm 1024|quantize 64)`)}, func(r Result) {
		names = append(names, r.Name+" "+r.Shape)
		if r.Value <= 0 || r.Limit <= 0 || r.Share <= 0 {
			t.Errorf("%+v", r)
		}
	})
	if want := []string{"fp32_gemm 1024x1024x1024", "quantize 64x1024"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("measured %q, %v, want %q", names, err, want)
	}
}

// TestInterrupted: a run that is over measures no more.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := Kernels(ctx, Options{Quick: true}, func(r Result) { t.Errorf("%s was measured", r.Name) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// TestLines: a walk sees and changes every cache line once, from any number of places.
func TestLines(t *testing.T) {
	for _, places := range []int{1, severalPlaces} {
		x := make([]float32, places*lineFloats*3)
		for i := 0; i < len(x); i += lineFloats {
			x[i] = 1
			if readLines(x, places) != math.Float32bits(1) {
				t.Errorf("%d places: line %d is not read once", places, i/lineFloats)
			}
			x[i] = 0
		}
		updateLines(x, places)
		for i := 0; i < len(x); i += lineFloats {
			if x[i] != 1 {
				t.Errorf("%d places: line %d is updated %g times", places, i/lineFloats, x[i])
			}
		}
	}
}

// TestPauses: quantiles of a histogram, and of what came after another.
// TestCollector: collections beside a product are seen, and their times are in order.
