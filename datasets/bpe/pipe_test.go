//go:build unix

package bpe

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe in place of a tokenizer.json is refused at once.
func TestOpenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error %v", err)
	}
}
