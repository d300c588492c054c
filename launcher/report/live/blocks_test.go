package live

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBar(t *testing.T) {
	for _, c := range []struct {
		share       float64
		cells       int
		full, empty string
	}{
		{0, 4, "", "░░░░"}, {0.5, 4, "██", "░░"}, {1, 3, "███", ""}, {2, 3, "███", ""}, {-1, 2, "", "░░"},
		{1.0 / 8, 1, "▏", ""}, {0.49, 2, "▉", "░"}, {0.999, 1, "▉", ""},
	} {
		if full, empty := bar(c.share, c.cells); full != c.full || empty != c.empty {
			t.Errorf("%g of %d cells: %q and %q, want %q and %q", c.share, c.cells, full, empty, c.full, c.empty)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		cells  int
		want   string
	}{
		{nil, 5, ""},
		{[]float64{3}, 5, "▁"},
		{[]float64{3, 3}, 5, "▁▁"},
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, 8, "█▇▆▅▄▃▂▁"},
		{[]float64{8, 8, 4, 4, 1, 1}, 3, "█▄▁"},
		{[]float64{1, math.NaN(), 9, math.Inf(1)}, 4, "▁×█×"},
		{[]float64{1, math.NaN(), 9, 9}, 2, "▁█"},
		{[]float64{math.NaN()}, 3, "×"},
		{[]float64{1, 2}, 0, ""},
		{[]float64{1, 2}, -3, ""},
	} {
		var h history
		for _, v := range c.values {
			h.add(v)
		}
		if got := h.sparkline(c.cells); got != c.want {
			t.Errorf("%v in %d cells: %q, want %q", c.values, c.cells, got, c.want)
		}
	}
}

// The steep fall at the beginning of a run does not flatten the rest of its sparkline.
func TestSparklineOfLoss(t *testing.T) {
	var h history
	for step := 1; step <= 3000; step++ {
		h.add(2 + 4*math.Exp(-float64(step)/60) + 0.8*math.Exp(-float64(step)/1500))
	}
	got := []rune(h.sparkline(32))
	if len(got) != 32 || got[0] != '█' || got[31] != '▁' {
		t.Errorf("%q", string(got))
	}
	seen := map[rune]bool{}
	for _, r := range got[8:] {
		seen[r] = true
	}
	if len(seen) < 7 {
		t.Errorf("the last three quarters of %q have %d heights", string(got), len(seen))
	}
	flat := history{means: append(slices.Repeat([]float64{3}, 4), slices.Repeat([]float64{1}, 12)...)}
	if got := flat.sparkline(16); got != "████▁▁▁▁▁▁▁▁▁▁▁▁" {
		t.Errorf("%q", got)
	}
}

// A long history keeps all of it in view with bounded memory.
func TestLongHistory(t *testing.T) {
	var h history
	for i := range 100000 {
		h.add(float64(-i))
	}
	if got := h.sparkline(8); got != "█▇▆▅▄▃▂▁" || len(h.means) >= mostMeans || cap(h.next) > 4096 {
		t.Errorf("%q of %d means, %d waiting", got, len(h.means), cap(h.next))
	}
}

func TestLoads(t *testing.T) {
	many := make([]int64, 4*64)
	for i := range many {
		many[i] = 10
	}
	many[70] = 20 // of layer 1: twice the others
	for _, c := range []struct {
		tokens        []int64
		layers, cells int
		want          string
	}{
		{nil, 0, 10, ""},
		{[]int64{5, 5}, 1, 0, ""},
		{[]int64{5, 5}, 1, 10, "▄▄"},
		{[]int64{0, 10, 5, 5}, 1, 10, "·█▄▄"},
		{[]int64{0, 0}, 1, 10, "··"},
		{[]int64{10, 0, 5, 5}, 2, 10, "█· ▄▄"},
		{many, 4, 11, "▄▄ █▄ ▄▄ ▄▄"},
		{many, 4, 4, "▄█▄▄"},
		{many, 4, 2, "█▄"},
	} {
		got := loads(c.tokens, c.layers, c.cells)
		if got != c.want || utf8.RuneCountInString(got) > c.cells {
			t.Errorf("%d experts in %d layers, %d cells: %q, want %q", len(c.tokens), c.layers, c.cells, got, c.want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
		width   int
	}{
		{"abc", 3, "abc", 3}, {"abc", 2, "ab", 2}, {"abc", 0, "", 0}, {"", 5, "", 0}, {"世界", 3, "世", 2}, {"e\u0301x", 1, "e\u0301", 1}, {"█░", 2, "█░", 2},
	} {
		if got, width := fit(c.text, c.columns); got != c.want || width != c.width {
			t.Errorf("%q in %d columns: %q of %d, want %q of %d", c.text, c.columns, got, width, c.want, c.width)
		}
	}
	text, width := line{{"abc", strings.ToUpper}, {text: "def"}}.cut(4)
	if text != "ABCd" || width != 4 {
		t.Errorf("%q of %d columns", text, width)
	}
}
