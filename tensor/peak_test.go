package tensor

import (
	"math"
	"testing"
	"time"
)

func TestPeak(t *testing.T) {
	for _, dtype := range floats {
		if p := Peak(dtype, time.Millisecond); !(p > 0) || math.IsInf(p, 0) {
			t.Errorf("%v: %v FLOP/s", dtype, p)
		}
	}
}
