package embedded

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The archive is the one that the source names, and small.
func TestArchive(t *testing.T) {
	unpacked, err := unpack()
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(unpacked)); sum != Sum {
		t.Errorf("the archive's SHA-256 is %s, the source says %s", sum, Sum)
	}
	if len(archive) > 2<<20 {
		t.Errorf("the archive has %d bytes, want at most 2 MiB", len(archive))
	}
}

// The files are text in the order of their names, enough of it to train on.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for i, f := range files {
		if i > 0 && f.Name <= files[i-1].Name {
			t.Errorf("%s stands after %s", f.Name, files[i-1].Name)
		}
		if len(f.Text) == 0 || !utf8.Valid(f.Text) || slices.Contains(f.Text, 0) {
			t.Errorf("%s is not text", f.Name)
		}
		if !strings.HasSuffix(f.Name, ".go") && !strings.HasSuffix(f.Name, ".md") {
			t.Errorf("%s is neither Go nor Markdown", f.Name)
		}
		size += len(f.Text)
	}
	if len(files) < 900 || size < 3<<20 {
		t.Errorf("%d files of %d bytes, want 900 of 3 MiB", len(files), size)
	}
}
