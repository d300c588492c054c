package datasets

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The estimate is what training on the text holds: its bytes.
func TestTextBytes(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"a.txt": 1000, "b/c.txt": 300} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, n)
		for i := range text {
			text[i] = 'x'
		}
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		paths []string
		want  int64
	}{
		{[]string{dir}, 1300},
		{[]string{filepath.Join(dir, "a.txt")}, 1000},
		{[]string{filepath.Join(dir, "a.txt") + "@1", filepath.Join(dir, "b") + "@3"}, 1300},
		{[]string{filepath.Join(dir, "none")}, 0},
	} {
		if got := TextBytes(c.paths); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.paths, got, c.want)
		}
	}
	built, err := Open(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if has, got := float64(built.Train.Bytes()+built.HeldOut.Bytes()), float64(TextBytes(nil)); math.Abs(got/has-1) > 0.2 {
		t.Errorf("the built-in text has %g bytes, estimated are %g", has, got)
	}
}
