package fault

import (
	"strings"
	"testing"
)

// Orders and settings come back from their text as they were.
func TestText(t *testing.T) {
	for _, p := range Places() {
		for a := range numActions {
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
		"":                               "three parts",
		"kill":                           "three parts",
		"kill@collective/meet/inside":    "three parts",
		"burn@collective/meet/inside#1":  "the actions are kill, stop",
		"kill@collective/meet#1":         `no place "collective/meet"`,
		"kill@collective/meet/inside#0":  "1 or more",
		"kill@collective/meet/inside#":   "1 or more",
		"kill@collective/meet/inside#+1": "1 or more",
		"kill@collective/meet/inside#01": "1 or more",
		"kill@collective/meet/inside#1 ": "1 or more",
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
		i.pass(InPut)
	}
	i.give(Order{Slow, InPut, 3})
	for n := 1; n <= 3; n++ {
		i.pass(InGet)
		if i.pass(InPut); struck() != (n == 3) {
			t.Errorf("struck: %t after passing %d", struck(), n)
		}
	}
	i.slow.Store(false)
	if i.pass(InPut); struck() {
		t.Error("an order was carried out twice")
	}
}

// A process that nobody has armed passes all places.
func TestUnarmed(t *testing.T) {
	if Armed() {
		t.Fatal("this process is armed")
	}
	for _, p := range Places() {
		Point(p)
	}
}

func BenchmarkUnarmed(b *testing.B) {
	for b.Loop() {
		Point(InMeeting)
	}
}
