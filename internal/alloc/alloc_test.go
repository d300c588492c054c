package alloc

import (
	"math"
	"testing"
)

// Sizes that Go cannot allocate are panics of the caller, which it can recover from.
func TestMake(t *testing.T) {
	for _, n := range []int{-1, 1 << 38, 1 << 44, math.MaxInt, math.MinInt} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d numbers were allocated", n)
				}
			}()
			Make[[2]int64](n)
		}()
	}
	if got := Make[int32](3); len(got) != 3 || len(Make[struct{}](1<<50)) != 1<<50 {
		t.Errorf("got %v", got)
	}
}

// Without the sizes, as on other systems, there is no bound.
func TestParse(t *testing.T) {
	for text, want := range map[string]int{
		"MemTotal:  2 kB\nMemFree: 1 kB\nSwapTotal: 3 kB\n": 5 << 10, "MemTotal: lots\n": math.MaxInt, "": math.MaxInt,
	} {
		if got := parse(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}
