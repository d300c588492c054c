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
	if got := Make[int32](3); len(got) != 3 || len(Make[struct{}](3)) != 3 {
		t.Errorf("got %v", got)
	}
}
