package fault

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"testing"
)

// Actions and places have names, and orders come back from their text as they were.
func TestText(t *testing.T) {
	for _, p := range Places() {
		for a := range Action(len(actionNames)) {
			want := Order{a, p, 1 + int64(p)*int64(a)}
			var got setting
			if err := json.Unmarshal([]byte(Setting(&want, "/a folder")), &got); err != nil || *got.Order != want || got.Folder != "/a folder" {
				t.Errorf("%v came back as %+v, %v", want, got, err)
			}
			if again, err := ParseAction(a.String()); err != nil || again != a {
				t.Errorf("%v came back as %v, %v", a, again, err)
			}
		}
	}
	if text := (Order{Kill, InMeeting, 37}).String(); text != "kill@collective/meet/inside#37" {
		t.Error(text)
	}
	if _, err := ParseAction("burn"); err == nil {
		t.Error("burn is an action")
	}
}

// Names are unique, and an order strikes at the given passing after it was given, once.
func TestPassings(t *testing.T) {
	names := map[string]bool{}
	for _, p := range Places() {
		if names[p.String()] || p.String() == "" {
			t.Errorf("place %d is called %q, as another", p, p)
		}
		names[p.String()] = true
	}
	i := &injector{}
	struck := func() bool { return i.slow.Load() }
	for range 5 {
		i.pass(InPut, nil)
	}
	i.give(Order{Slow, InPut, 3})
	for n := 1; n <= 3; n++ {
		i.pass(InGet, nil)
		if i.pass(InPut, nil); struck() != (n == 3) {
			t.Errorf("struck: %t after passing %d", struck(), n)
		}
	}
	i.slow.Store(false)
	if i.pass(InPut, nil); struck() {
		t.Error("an order was carried out twice")
	}
}

// A process that nobody has armed passes all places.
func TestUnarmed(t *testing.T) {
	if Armed() {
		t.Fatal("this process is armed")
	}
	for _, p := range Places() {
		data := []byte{1, 2, 3}
		Point(p)
		Touch(p, data)
		if err := Try(p, data); err != nil || !bytes.Equal(data, []byte{1, 2, 3}) {
			t.Errorf("%v: %v, data %v", p, err, data)
		}
	}
}

// A flip changes one bit, somewhere; a NaN some bytes, of which 8 neighbours are one.
func TestCorruption(t *testing.T) {
	for n := range uint64(1000) {
		for _, length := range []int{1, 7, 8, 9, 64, 100} {
			data := make([]byte, length)
			corruption{data, n}.flip()
			ones := 0
			for _, b := range data {
				ones += bits.OnesCount8(b)
			}
			if ones != 1 {
				t.Fatalf("%d bits of %d bytes were flipped", ones, length)
			}
			clear(data)
			corruption{data, n}.nan()
			first := bytes.IndexByte(data, 0xff)
			if first%8 != 0 || bytes.Count(data, []byte{0xff}) != min(8, length-first) {
				t.Fatalf("%d bytes became %x", length, data)
			}
		}
	}
}

func BenchmarkUnarmed(b *testing.B) {
	for b.Loop() {
		Point(InMeeting)
	}
}
