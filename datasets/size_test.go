package datasets

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// The estimate is what training on the text holds: its bytes.
func TestTextBytes(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": strings.Repeat("x", 1000), "b/c.txt": strings.Repeat("x", 300)})
	file, folder := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b")
	for want, paths := range map[int64][]string{1300: {file + "@1", folder + "@3"}, 1000: {file}, 0: {filepath.Join(dir, "none")}} {
		if got := TextBytes(paths); got != want {
			t.Errorf("%v: %d bytes, want %d", paths, got, want)
		}
	}
	built := open(t, Options{})
	if has, got := float64(built.Train.Bytes()+built.HeldOut.Bytes()), float64(TextBytes(nil)); math.Abs(got/has-1) > 0.2 {
		t.Errorf("the built-in text has %g bytes, estimated are %g", has, got)
	}
}
