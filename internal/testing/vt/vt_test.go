package vt

import (
	"slices"
	"testing"
)

func TestTerminal(t *testing.T) {
	for name, c := range map[string]struct{ in, screen, all string }{
		"lines":               {"one\ntwo\r\n", "one\ntwo", "one\ntwo"},
		"back and over":       {"12345\rab", "ab345", "ab345"},
		"wraps when it must":  {"123456", "12345\n6", "12345\n6"},
		"full row, no wrap":   {"12345\nx", "12345\nx", "12345\nx"},
		"scrolls":             {"1\n2\n3\n4", "2\n3\n4", "1\n2\n3\n4"},
		"up and erase below":  {"1\n2\n3\x1b[2A\x1b[JX", "1X", "1X"},
		"up stops at the top": {"1\n2\n3\n4\n\x1b[9AX", "X\n4", "1\n2\nX\n4"},
		"erases to the right": {"1234\r\x1b[2A12\x1b[K", "12", "12"},
		"styles":              {"\x1b[1;31mred\x1b[0m", "red", "red"},
		"wide bytes":          {"é█", "é█", "é█"},
	} {
		term := New(5, 3)
		for i := range len(c.in) { // in the smallest pieces
			term.Write([]byte(c.in[i : i+1]))
		}
		if got := term.Screen(); got != c.screen || term.All() != c.all || term.Err != nil {
			t.Errorf("%s: seen is %q, in all %q, error %v; want %q and %q", name, got, term.All(), term.Err, c.screen, c.all)
		}
	}
	term := New(5, 3)
	term.Write([]byte("a\x1b[1;31mb\x1b[0mc"))
	if got := term.Cells(); len(got) != 1 || !slices.Equal(got[0], []Cell{{'a', ""}, {'b', "1;31"}, {'c', ""}}) {
		t.Errorf("cells %v", got)
	}
	for _, in := range []string{"\x1b[?25l", "\x1b[2J", "\x1b7", "\a"} {
		term := New(5, 3)
		term.Write([]byte(in))
		if term.Err == nil {
			t.Errorf("%q is known", in)
		}
	}
}

func TestResize(t *testing.T) {
	term := New(6, 4)
	term.Write([]byte("123456\nab\n"))
	term.Resize(4, 4)
	if got := term.Screen(); got != "1234\n56\nab" {
		t.Errorf("narrower: %q", got)
	}
	term.Write([]byte("x"))
	if got := term.Screen(); got != "1234\n56\nab\nx" {
		t.Errorf("the cursor has moved: %q", got)
	}
	term.Write([]byte("\n"))
	term.Resize(6, 4)
	if got := term.All(); got != "123456\nab\nx" {
		t.Errorf("wider again: %q", got)
	}
	if column, text := term.Cursor(); column != 0 || text != "" {
		t.Errorf("the cursor is at column %d of %q", column, text)
	}
}
