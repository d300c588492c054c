package datasets

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadText: whatever size a file is said to have, its text is read, or it is an error.
func TestReadText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	text := strings.Repeat("some text, ", 300<<10)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, claim := range []int64{3 << 20, int64(len(text)), int64(len(text)) + 1, 1 << 62} {
		if got, err := readText(path, claim, unpacked); err != nil || string(got) != text {
			t.Errorf("claimed to have %d bytes: %d of %d, %v", claim, len(got), len(text), err)
		}
	}
	_, err := readText(path, 0, unpacked)
	wantError(t, err, "it grows while it is read")
	if err := os.WriteFile(path, []byte(text+"\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readText(path, 3<<20, unpacked); !errors.Is(err, errBinary) {
		t.Errorf("a NUL at the end: %v", err)
	}
}
