package trainer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
)

// tightDisk is a disk with room for some bytes in a folder. It fails after a number of operations,
// as if the job had been killed.
type tightDisk struct {
	mu    sync.Mutex
	dir   string
	bytes int64
	left  int
}

// fail counts the operations that change names or contents.
func (d *tightDisk) fail(operation, _ string) error {
	if operation == "mkdir" || operation == "sync" || operation == "syncdir" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left < 0 {
		return syscall.EIO
	}
	return nil
}

// room returns the free bytes.
func (d *tightDisk) room() int64 {
	free := d.bytes
	files, _ := filepath.Glob(filepath.Join(d.dir, "*step-*", "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			free -= info.Size()
		}
	}
	return free
}

// resumeOn resumes the run on a disk, without its folder's other files.
func resumeOn(t *testing.T, disk checkpoint.Files, cfg config.Config) error {
	t.Helper()
	job, err := Prepare(cfg, 2, cfg.Out, &reports{})
	if err != nil {
		t.Fatal(err)
	}
	job.files = disk
	return job.Run(context.Background(), spmd.Goroutines{N: 2})
}

// A run that keeps no older checkpoint and is killed at any moment of a save has one that loads,
// unless the disk has no room for two and the old one is being deleted.
func TestKilledInAnySave(t *testing.T) {
	t.Parallel()
	first := tiny(t, func(c *config.Config) { c.Keep, c.SaveEvery, c.SaveRetry, c.Steps = 0, 0, 0, 1 })
	train(t, first, 2, "")
	const old = "step-00000001"
	begin := func() config.Config {
		cfg := first
		cfg.Steps, cfg.Out = 2, filepath.Join(t.TempDir(), "run")
		if err := os.CopyFS(filepath.Join(cfg.Out, old), os.DirFS(filepath.Join(first.Out, old))); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	calm := begin()
	train(t, calm, 2, calm.Out)
	names, size := folder(t, filepath.Join(first.Out, old)), int64(0)
	for _, f := range names {
		size += int64(len(read(t, filepath.Join(first.Out, old, f))))
	}
	for name, c := range map[string]struct {
		room   float64 // in checkpoints
		lost   bool    // a kill may lose it
		stride int     // operations between kills
	}{"two": {2.3, false, 3}, "one": {1.4, true, 1}} {
		hidden, lost := 0, 0 // kills that left the old one hidden, and nothing
		for left, killed := 0, true; killed; left += c.stride {
			cfg := begin()
			disk := &tightDisk{dir: cfg.Out, bytes: int64(c.room * float64(size)), left: left}
			err := resumeOn(t, faultyDisk{fail: disk.fail, room: disk.room, writes: new(sync.Mutex)}, cfg)
			if killed = disk.left < 0; !killed && err != nil {
				t.Fatal(err)
			}
			r, none := checkpoint.Open(cfg.Out, state.CheckState)
			if none != nil {
				there, _ := filepath.Glob(filepath.Join(cfg.Out, "*"+old+"*", "*"))
				if lost++; !killed || !c.lost || len(there) == len(names) {
					t.Fatalf("room for %s, after %d operations: %v; %d files of the old checkpoint are there", name, left, none, len(there))
				}
				continue
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if strings.HasSuffix(r.Path(), ".pruned") {
				hidden++
			}
			disk.left = 1 << 30
			if err := resumeOn(t, faultyDisk{fail: disk.fail, room: disk.room, writes: new(sync.Mutex)}, cfg); err != nil {
				t.Fatalf("room for %s, after %d operations: %v", name, left, err)
			}
			sameState(t, name, cfg, calm, 2)
		}
		if c.lost != (hidden > 0) || c.lost != (lost > 0) {
			t.Errorf("room for %s: %d kills have left the old checkpoint hidden, %d nothing", name, hidden, lost)
		}
	}
}
