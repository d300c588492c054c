package format

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

// elements lists the built-in elements.
var elements = []*Element{E4M3, E5M2, E2M3, E3M2, E2M1, INT8}

// finite lists the codes of numbers, by value.
func finite(f *Element) []uint8 {
	var codes []uint8
	for c := range f.Codes() {
		v := float64(f.Decode(uint8(c)))
		if !math.IsNaN(v) && !math.IsInf(v, 0) && !(f == INT8 && c == 0x80) {
			codes = append(codes, uint8(c))
		}
	}
	slices.SortFunc(codes, func(a, b uint8) int { return cmp.Compare(f.Decode(a), f.Decode(b)) })
	return codes
}

// nearest is Encode by search: of the codes of x's sign, the one whose value is closest, or the
// even one of two.
func nearest(f *Element, codes []uint8, x float64) uint8 {
	x = min(max(x, -float64(f.Max())), float64(f.Max()))
	best, distance := uint8(0), math.Inf(1)
	for _, code := range codes {
		v := float64(f.Decode(code))
		if f != INT8 && math.Signbit(v) != math.Signbit(x) {
			continue
		}
		if d := math.Abs(v - x); d < distance || d == distance && code&1 == 0 {
			best, distance = code, d
		}
	}
	return best
}

// TestEncodeNearest holds Encode against a search through all codes: at every value, at the
// midpoint between each two neighbours and on both sides of it.
func TestEncodeNearest(t *testing.T) {
	for _, f := range elements {
		codes := finite(f)
		points := []float32{1e30, -1e30, 1e-30, -1e-30}
		for i, code := range codes {
			points = append(points, f.Decode(code))
			if i > 0 {
				mid := (f.Decode(codes[i-1]) + f.Decode(code)) / 2
				points = append(points, mid, math.Nextafter32(mid, 1e9), math.Nextafter32(mid, -1e9))
			}
		}
		for _, x := range points {
			if got, want := f.Encode(x), nearest(f, codes, float64(x)); got != want {
				t.Errorf("%v: %g becomes %#x (%g), want %#x (%g)", f, x, got, f.Decode(got), want, f.Decode(want))
			}
		}
	}
}

// TestFormatValues holds the parameters against the tables of OCP MX v1.0, section 5.3.
func TestFormatValues(t *testing.T) {
	tests := []struct {
		f                   *Element
		max, normal, lowest float32 // largest value, smallest normal, smallest subnormal
		emax                int
	}{
		{E4M3, 448, 1.0 / 64, 1.0 / 512, 8},
		{E5M2, 57344, 1.0 / 16384, 1.0 / 65536, 15},
		{E2M3, 7.5, 1, 0.125, 2},
		{E3M2, 28, 0.25, 0.0625, 4},
		{E2M1, 6, 1, 0.5, 2},
		{INT8, 127.0 / 64, 1, 1.0 / 64, 0},
	}
	for _, tt := range tests {
		normal := tt.f.Decode(1 << tt.f.Mantissa())
		if tt.f.Max() != tt.max || normal != tt.normal || tt.f.Decode(1) != tt.lowest || tt.f.MaxExponent() != tt.emax {
			t.Errorf("%v: largest %g, smallest normal %g, smallest %g, emax %d; want %g, %g, %g, %d",
				tt.f, tt.f.Max(), normal, tt.f.Decode(1), tt.f.MaxExponent(), tt.max, tt.normal, tt.lowest, tt.emax)
		}
	}
}

func TestEncodeSpecial(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	zero := float32(math.Copysign(0, -1))
	tests := []struct {
		f    *Element
		x    float32
		want uint8
	}{
		{E4M3, nan, 0x7f}, {E5M2, nan, 0x7f}, {E4M3, inf, 0x7e}, {E5M2, -inf, 0xfb}, {INT8, -inf, 0x81},
		{E4M3, zero, 0x80}, {E2M1, zero, 0x08}, {E2M3, zero, 0x20}, {INT8, zero, 0}, {E4M3, -1e-30, 0x80},
		{E4M3, 464, 0x7e}, {E4M3, 480, 0x7e}, {E4M3, math.MaxFloat32, 0x7e}, {E2M1, math.MaxFloat32, 0x07},
	}
	for _, tt := range tests {
		if got := tt.f.Encode(tt.x); got != tt.want {
			t.Errorf("%v: %g becomes %#x, want %#x", tt.f, tt.x, got, tt.want)
		}
	}
}
