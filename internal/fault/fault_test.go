package fault

import (
	"bytes"
	"math/bits"
	"strings"
	"testing"
)

// Orders and settings come back from their text as they were.
func TestText(t *testing.T) {
	for _, p := range Places() {
		for a := range numActions {
			if !a.fits(p) {
				continue
			}
			want := Order{a, p, 1 + int64(p)*int64(a)}
			if got, err := ParseOrder(want.String()); err != nil || got != want {
				t.Errorf("%v came back as %v, %v", want, got, err)
			}
			for _, folder := range []string{"", "/a folder"} {
				order, where, err := parseSetting(Setting(&want, folder))
				if err != nil || order == nil || *order != want || where != folder {
					t.Errorf("%q came back as %v %q, %v", Setting(&want, folder), order, where, err)
				}
			}
		}
	}
	if order, where, err := parseSetting(Setting(nil, "/x")); order != nil || where != "/x" || err != nil {
		t.Errorf("a setting without an order came back as %v %q, %v", order, where, err)
	}
}

// What is no order is refused, with the reason.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                 "three parts",
		"kill":                                             "three parts",
		"kill@collective/meet/inside":                      "three parts",
		"burn@collective/meet/inside#1":                    "the actions are kill, stop",
		"kill@collective/meet#1":                           `no place "collective/meet"`,
		"kill@collective/meet/inside#0":                    "1 or more",
		"kill@collective/meet/inside#":                     "1 or more",
		"kill@collective/meet/inside#+1":                   "1 or more",
		"kill@collective/meet/inside#01":                   "1 or more",
		"kill@collective/meet/inside#1 ":                   "1 or more",
		"flip@collective/meet/inside#1":                    "cannot flip",
		"full@ep/put/message#1":                            "cannot full",
		"kill@collective/meet/inside#99999999999999999999": "1 or more",
	} {
		if _, err := ParseOrder(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q in it", text, err, want)
		}
	}
	for _, text := range []string{"none ", "", "kill@nowhere#1 /x"} {
		if _, _, err := parseSetting(text); err == nil {
			t.Errorf("setting %q is accepted", text)
		}
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
