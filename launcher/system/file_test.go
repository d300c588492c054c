package system

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A file is replaced as a whole, and a failure leaves nothing behind.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "2nd"} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q, %v, want %q", got, err, content)
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(folder, []byte("x")); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v are left, %v", entries, err)
	}
}

// Files that were left without their name go, all others stay.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	for _, prefix := range []string{".new-", ".record-"} {
		file, err := CreateNew(dir, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stay := []string{".new-0123456789abcdef.bak", ".new-12", "config.toml", "x.new-0123456789abcdef"}
	for _, name := range stay {
		if err := WriteFile(filepath.Join(dir, name), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := Tidy(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, stay) {
		t.Errorf("%q are left, expected %q", names, stay)
	}
	if err := Tidy(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that does not exist was tidied")
	}
}
