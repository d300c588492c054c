package philox

import "testing"

// TestKnownAnswers has the known answers of Random123, the authors' implementation (kat_vectors).
func TestKnownAnswers(t *testing.T) {
	const ones = 0xffffffff
	for _, tt := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Block(tt.key, tt.counter); got != tt.want {
			t.Errorf("Block(%x, %x) = %x, want %x", tt.key, tt.counter, got, tt.want)
		}
	}
}
