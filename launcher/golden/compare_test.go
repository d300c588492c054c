package golden

import (
	"math"
	"slices"
	"strings"
	"testing"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// An element may be off by the absolute bound plus the relative one, and not by more.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		got, want []float32
		ok        bool
		at        string
	}{
		{[]float32{1, 2, 3}, []float32{1, 2, 3}, true, ""},
		{nil, nil, true, ""},
		{[]float32{0, 1.9e-5}, []float32{0, 0}, true, "element 1"},
		{[]float32{0, 2.1e-5}, []float32{0, 0}, false, "element 1"},
		{[]float32{100.0099}, []float32{100}, true, "element 0"},
		{[]float32{100.0101}, []float32{100}, false, "element 0"},
		{[]float32{-100.0101}, []float32{-100}, false, "element 0"},
		{[]float32{1, 5, 1}, []float32{1, 1, 2}, false, "element 1"},
		{[]float32{0, nan, 9}, []float32{0, 0, 0}, false, "element 1"},
		{[]float32{0, 0}, []float32{0, nan}, false, "element 1"},
		{[]float32{inf}, []float32{0}, false, "element 0"},
	} {
		l := elements("x", c.got, c.want)
		if l.OK() != c.ok || !strings.Contains(l.Note, c.at) || !l.Compared() {
			t.Errorf("%v against %v: %+v, want ok %t at %q", c.got, c.want, l, c.ok, c.at)
		}
	}
}

func TestRelativeL2(t *testing.T) {
	for _, c := range []struct {
		got, want []float32
		error     float64
		ok        bool
	}{
		{[]float32{3, 4}, []float32{3, 4}, 0, true},
		{[]float32{3, 4.0025}, []float32{3, 4}, 5e-4, true},
		{[]float32{3, 4.01}, []float32{3, 4}, 2e-3, false},
		{[]float32{0, 0}, []float32{0, 0}, 0, true},
		{[]float32{0, 1e-20}, []float32{0, 0}, math.Inf(1), false},
		{[]float32{nan, 4}, []float32{3, 4}, math.NaN(), false},
		{[]float32{3, 4}, []float32{nan, 4}, math.Inf(1), false},
	} {
		l := relativeL2("x", c.got, c.want)
		same := math.Abs(l.Error-c.error) < 1e-6 || l.Error == c.error || math.IsNaN(l.Error) && math.IsNaN(c.error)
		if l.OK() != c.ok || !same {
			t.Errorf("%v against %v: %+v, want error %g, ok %t", c.got, c.want, l, c.error, c.ok)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		got, want float64
		ok        bool
	}{{1, 1, true}, {1, 1.25, true}, {1.25, 1, true}, {1, 1.26, false}, {math.NaN(), 1, false}, {1, math.NaN(), false}} {
		if l := number("x", c.got, c.want, 0.25); l.OK() != c.ok {
			t.Errorf("%g against %g: %+v", c.got, c.want, l)
		}
	}
}

// The order of a token's experts is of no account, the set is.
func TestChoices(t *testing.T) {
	want := []int32{1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		got  []int32
		off  float64
		note string
	}{
		{[]int32{1, 2, 3, 4, 5, 6}, 0, ""},
		{[]int32{2, 1, 4, 3, 6, 5}, 0, ""},
		{[]int32{1, 2, 3, 7, 5, 6}, 1, "first at token 1: [3 7], reference [3 4]"},
		{[]int32{1, 3, 2, 4, 5, 5}, 3, "first at token 0"},
	} {
		l := countChoices("x", c.got, want, 2)
		if l.Error != c.off || l.OK() != (c.off == 0) || !strings.Contains(l.Note, c.note) {
			t.Errorf("%v: %+v, want %g off, %q", c.got, l, c.off, c.note)
		}
	}
}

func TestReorder(t *testing.T) {
	got := reorder([]float32{10, 20, 30, 40}, []int32{1, 2, 3, 4}, []int32{2, 1, 4, 9}, 2)
	if want := []float32{20, 10, 40, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The early steps of a replay have a tight bound, the later ones a loose one.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		steps int
		off   int // step that is off
		by    float64
		lines int
		bad   int // line that misses; -1: none
	}{
		{40, 3, 0.9e-4, 2, -1}, {40, 3, 1.1e-4, 2, 0}, {40, 8, 1.1e-4, 2, -1}, {40, 39, 1.1e-2, 2, 1}, {40, 20, math.NaN(), 2, 1},
		{5, 4, 0.9e-4, 1, -1}, {5, 4, 1.1e-4, 1, 0}, {8, 7, 1.1e-4, 1, 0},
	} {
		deviations := make([]Deviation, c.steps)
		deviations[c.off].Loss = c.by
		lines := Lines(deviations)
		if len(lines) != c.lines {
			t.Fatalf("%d steps: %d lines, want %d", c.steps, len(lines), c.lines)
		}
		for i, l := range lines {
			if l.OK() != (i != c.bad) {
				t.Errorf("%d steps, step %d off by %g: %+v", c.steps, c.off+1, c.by, l)
			}
		}
	}
}
