package save

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"spmoe/launcher/checkpoint"
)

// Writing stops when the ranks have failed.
func TestCancellable(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	out, err := cancellable{checkpoint.Disk{}, ctx, new(atomic.Uint64), &Saver{}}.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if n, err := out.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("wrote %d bytes, error %v", n, err)
	}
	cancel()
	if n, err := out.Write([]byte("abc")); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("wrote %d bytes after the end, error %v", n, err)
	}
}
