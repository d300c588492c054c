package fault

import (
	"bytes"
	"math/bits"
	"testing"
)

// An order's text arms a process, and it strikes at its passing only.
func TestOrders(t *testing.T) {
	if err := Arm("kill@somewhere"); err == nil {
		t.Error("an order without a count armed this process")
	}
	if Armed() {
		t.Fatal("this process is armed")
	}
	data := []byte{1, 2, 3}
	Touch(InMessage, data)
	orders := []Order{{Flip, InMessage, 2}, {Full, InWrite, 1}}
	if err := Arm(orders[0].String() + " " + orders[1].String()); err != nil || !Armed() {
		t.Fatal(err)
	}
	defer armed.Store(nil)
	for n := 1; n <= 3; n++ {
		before := bytes.Clone(data)
		Point(InMeeting)
		Touch(InMessage, data)
		if bytes.Equal(data, before) == (n == 2) {
			t.Errorf("passing %d: %v, before %v", n, data, before)
		}
		if err := Try(InWrite, data); (err != nil) != (n == 1) {
			t.Errorf("passing %d: %v", n, err)
		}
	}
}

// A flip changes one bit, somewhere; a NaN up to 8 bytes, which begin at a multiple of 8. Each
// place has its turn.
func TestCorruption(t *testing.T) {
	places := map[Action]uint64{} // of bits in a byte, and of numbers in 64 bytes
	for n := 1; n <= 1000; n++ {
		for _, length := range []int{1, 7, 8, 9, 64, 100} {
			data := bytes.Repeat([]byte{0x5a}, length)
			Order{Flip, InWeights, n}.execute(data)
			ones := 0
			for _, b := range data {
				ones += bits.OnesCount8(b ^ 0x5a)
				places[Flip] |= uint64(b ^ 0x5a)
			}
			if ones != 1 {
				t.Fatalf("%d bits of %d bytes were flipped", ones, length)
			}
			clear(data)
			Order{NaN, InWeights, n}.execute(data)
			first := bytes.IndexByte(data, 0xff)
			if first%8 != 0 || bytes.Count(data, []byte{0xff}) != min(8, length-first) {
				t.Fatalf("%d bytes became %x", length, data)
			}
			if length == 64 {
				places[NaN] |= 1 << (first / 8)
			}
		}
	}
	if places[Flip] != 0xff || places[NaN] != 0xff {
		t.Errorf("places %x of 1000 orders", places)
	}
}
