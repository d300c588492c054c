package bench

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestKernelsAreBuilt runs every kernel of the quick list in its first shape.
func TestKernelsAreBuilt(t *testing.T) {
	s, seen := newSuite(), map[string]bool{}
	for _, k := range kernels(true) {
		if !seen[k.name] {
			mark := s.ex.Mark()
			k.prepare(s)()
			s.ex.Release(mark)
		}
		if k.work <= 0 || seen[k.name+k.shape] {
			t.Errorf("%s %s: work %g, seen %v", k.name, k.shape, k.work, seen[k.name+k.shape])
		}
		seen[k.name], seen[k.name+k.shape] = true, true
		if quantized := strings.HasPrefix(k.name, "mx"); quantized != (k.inBF16 != nil) {
			t.Errorf("%s %s: has a product in BF16 to compare with: %v", k.name, k.shape, k.inBF16 != nil)
		}
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
