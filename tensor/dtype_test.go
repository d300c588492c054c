package tensor

import (
	"math"
	"testing"
)

func TestToBFloat16(t *testing.T) {
	for _, c := range []struct {
		from uint32
		want BFloat16
	}{
		{0x3f808000, 0x3f80}, // a tie goes to the even neighbour, below
		{0x3f818000, 0x3f82}, // and above
		{0x3f808001, 0x3f81},
		{0x3f807fff, 0x3f80},
		{0xbf818000, 0xbf82},
		{0x3fffffff, 0x4000}, // into the next binade
		{0x7f7fffff, 0x7f80}, // the largest number becomes infinite
		{0x7f7f7fff, 0x7f7f},
		{0x00018000, 0x0002}, // subnormals are kept
		{0x00000001, 0x0000},
		{0x80000000, 0x8000},
		{0x7f800001, 0x7fc0}, // a signalling NaN becomes quiet instead of infinite
		{0xffffffff, 0xffff},
	} {
		if got := ToBFloat16(math.Float32frombits(c.from)); got != c.want {
			t.Errorf("%#08x became %#04x, want %#04x", c.from, got, c.want)
		}
	}
}
