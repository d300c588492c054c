package spmd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Whatever the variable says that a launcher sets, a process that no launcher has started is told
// so, and takes no file for a heap.
func FuzzJoined(f *testing.F) {
	f.Add(fmt.Sprintf(rankFormat, 1, 1<<30, 8, 0, true))
	f.Add("-1 of launcher -2 on -3 cores from generation -4, healing 2")
	f.Add("99999999999999999999 of launcher 1 on 2 cores from generation 0, healing true")
	f.Add("1 of launcher 2 on 3 cores from generation 4, healing false and more\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "\x00") || strings.Contains(text, fmt.Sprint(os.Getppid())) {
			return // no variable can hold it, or it may name the process that has started this one
		}
		if err := os.Setenv(rankVariable, text); err != nil {
			t.Fatal(err)
		}
		defer os.Unsetenv(rankVariable)
		m, err := Joined()
		if err == nil || m != nil && m.heap != nil {
			t.Fatalf("%q: %+v, %v", text, m, err)
		}
		if !strings.Contains(err.Error(), rankVariable) && !strings.Contains(err.Error(), "has gone") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// passed is what comes out of the lines of a rank that prints text in pieces of a size, and how
// many bytes were held at most.
func passed(t *testing.T, text string, piece int) (out string, held int) {
	t.Helper()
	var b strings.Builder
	l := &lines{w: &b, mu: new(sync.Mutex)}
	end := &tail{to: l}
	for rest := text; len(rest) > 0; rest = rest[min(len(rest), piece):] {
		n := min(len(rest), piece)
		if written, err := end.Write([]byte(rest[:n])); written != n || err != nil {
			t.Fatalf("%d of %d bytes, %v", written, n, err)
		}
		held = max(held, len(l.rest), len(end.last))
	}
	l.flush()
	end.lines()
	return b.String(), held
}

// A line that never ends comes out in pieces, and little of it is held.
func TestLongLines(t *testing.T) {
	x := strings.Repeat("x", maxLine)
	for _, piece := range []int{1000, maxLine - 1, maxLine, maxLine + 1, 1 << 30} {
		for text, want := range map[string]string{
			x + "\n" + "end\n":      x + "\nend\n",
			x + "yy\n" + "end":      x + "\nyy\nend\n",
			x + x + x + "y":         x + "\n" + x + "\n" + x + "\ny\n",
			"a\n" + x + "\n\nb\n\n": "a\n" + x + "\n\nb\n\n",
		} {
			// Where the end of a line of full length comes later than the line, it is one of an
			// empty line.
			got, held := passed(t, text, piece)
			if blank := x + "\n\n"; got != want && got != strings.Replace(want, x+"\n", blank, 1) {
				t.Errorf("pieces of %d: %d bytes, want %d", piece, len(got), len(want))
			}
			if held >= maxLine {
				t.Errorf("pieces of %d: %d bytes are held", piece, held)
			}
		}
	}
}

// Whatever ranks print, and in whatever pieces, comes out whole, in lines.
func FuzzOutput(f *testing.F) {
	f.Add("one\ntwo\n\nthree", uint8(2))
	f.Add("\n\n\xff\x00\n", uint8(0))
	f.Fuzz(func(t *testing.T, text string, piece uint8) {
		if len(text) >= maxLine {
			return
		}
		got, _ := passed(t, text, 1+int(piece))
		if want := strings.TrimSuffix(text, "\n"); text != "" && got != want+"\n" {
			t.Errorf("%q came out of %q", got, text)
		}
	})
}
