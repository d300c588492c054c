package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// Saves that go on during training hold what saves that stop it do, byte for byte, and all of them
// are reported, in order.
func TestAsynchronousSaves(t *testing.T) {
	t.Parallel()
	var folders [2]string
	for i, async := range []bool{false, true} {
		cfg := tiny(t, func(c *config.Config) {
			c.Steps, c.SaveEvery, c.Keep, c.SaveAsync, c.Precision = 9, 2, 99, async, "mxfp8"
		})
		got := train(t, cfg, 4, "")
		folders[i] = cfg.Out
		var saved []int
		for _, s := range got.saved {
			saved = append(saved, s.Step)
			if want := filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", s.Step)); s.Path != want || s.Stall <= 0 || s.Lag <= 0 {
				t.Errorf("async %t: %+v, want path %s", async, s, want)
			}
		}
		if !slices.Equal(saved, []int{2, 4, 6, 8, 9}) || len(got.alarms) > 0 {
			t.Errorf("async %t: saved %v, alarms %v", async, saved, got.alarms)
		}
	}
	for _, step := range []string{"step-00000002", "step-00000004", "step-00000006", "step-00000008", "step-00000009"} {
		for rank := range 4 {
			name := filepath.Join(step, fmt.Sprintf("rank-%05d-of-00004.safetensors", rank))
			if a, b := read(t, filepath.Join(folders[0], name)), read(t, filepath.Join(folders[1], name)); a != b {
				t.Errorf("%s differs", name)
			}
		}
	}
}

// faultyDisk is a disk whose operations fail if fail says so. Unless room is nil, it returns the
// free bytes, and writes are made one at a time.
type faultyDisk struct {
	checkpoint.Disk
	fail   func(operation, path string) error
	room   func() int64
	writes *sync.Mutex
}

func (d faultyDisk) Create(path string) (checkpoint.Output, error) {
	if err := d.fail("create", path); err != nil {
		return nil, err
	}
	out, err := d.Disk.Create(path)
	return faultyOutput{out, d, path}, err
}

func (d faultyDisk) Mkdir(path string) error {
	return errors.Join(d.fail("mkdir", path), d.Disk.Mkdir(path))
}

func (d faultyDisk) Rename(from, to string) error {
	if err := d.fail("rename", from); err != nil {
		return err
	}
	return d.Disk.Rename(from, to)
}

func (d faultyDisk) Remove(path string) error {
	if err := d.fail("remove", path); err != nil {
		return err
	}
	return d.Disk.Remove(path)
}

func (d faultyDisk) SyncDir(path string) error {
	return errors.Join(d.fail("syncdir", path), d.Disk.SyncDir(path))
}

type faultyOutput struct {
	checkpoint.Output
	disk faultyDisk
	path string
}

// Write writes half of what it fails to write.
func (o faultyOutput) Write(p []byte) (int, error) {
	err, n := o.disk.fail("write", o.path), len(p)
	if err != nil {
		n /= 2
	}
	if o.disk.room != nil {
		o.disk.writes.Lock()
		defer o.disk.writes.Unlock()
		if free := int(max(o.disk.room(), 0)); err == nil && n > free {
			n, err = free, syscall.ENOSPC
		}
	}
	n, wrote := o.Output.Write(p[:n])
	return n, errors.Join(err, wrote)
}

func (o faultyOutput) Sync() error {
	return errors.Join(o.disk.fail("sync", o.path), o.Output.Sync())
}

// failing returns a disk on which an operation on some paths fails a number of times. Without an
// error it panics.
func failing(times int32, operation, path string, err error) faultyDisk {
	var failed atomic.Int32
	return faultyDisk{fail: func(does, where string) error {
		switch {
		case does != operation || !strings.Contains(where, path) || failed.Add(1) > times:
			return nil
		case err == nil:
			panic("a broken disk")
		}
		return &fs.PathError{Op: does, Path: where, Err: err}
	}}
}

// always is a number of failures after which no disk is repaired here.
const always = math.MaxInt32

// on runs cfg on n ranks with checkpoints on that disk.
func on(t *testing.T, disk checkpoint.Files, cfg config.Config, n int) (*reports, error) {
	t.Helper()
	r := &reports{}
	return r, runOn(t, context.Background(), disk, cfg, n, r)
}

// runOn is on with a context and a reporter.
func runOn(t *testing.T, ctx context.Context, disk checkpoint.Files, cfg config.Config, n int, r events.Reporter) error {
	t.Helper()
	job, err := Prepare(cfg, n, "", r)
	if err != nil {
		t.Fatal(err)
	}
	job.files = disk
	return job.Run(ctx, spmd.Goroutines{N: n})
}

// A save that fails, on whichever rank and at whatever it does, is reported; training goes on, the
// checkpoints before it stay as they are, and the next save works.
func TestFailingSave(t *testing.T) {
	t.Parallel()
	const step = ".step-00000004.tmp"
	for _, c := range []struct {
		operation, path string
		err             error
		async           bool
	}{
		{"mkdir", step, syscall.EROFS, true},
		{"write", step + "/rank-00000", syscall.ENOSPC, false},
		{"write", step + "/rank-00001", syscall.ENOSPC, true},
		{"sync", step + "/rank-00001", syscall.EIO, true},
		{"write", step + "/manifest.json", syscall.ENOSPC, false},
		{"syncdir", step, syscall.EIO, true},
		{"rename", step, syscall.EIO, true},
	} {
		// The name becomes part of every path.
		t.Run(c.operation+" "+strings.TrimPrefix(c.path, step), func(t *testing.T) {
			cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 8, 2, 99 })
			cfg.SaveAsync = c.async
			got, err := on(t, failing(always, c.operation, c.path, c.err), cfg, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.alarms) != 1 || got.alarms[0].Step != 4 || !strings.Contains(got.alarms[0].Text, c.err.Error()) ||
				!strings.Contains(got.alarms[0].Text, "step 4 was not saved") {
				t.Errorf("alarms %+v, want one about step 4 and %q", got.alarms, c.err)
			}
			if len(got.steps) != 8 || len(got.saved) != 3 {
				t.Errorf("%d steps made, saved %+v", len(got.steps), got.saved)
			}
			for _, s := range []int{2, 6, 8} {
				savedProgress(t, cfg, s)
			}
			if left := folder(t, cfg.Out); !slices.Equal(left, []string{"config.toml", "events.jsonl", "metrics.jsonl", "step-00000002", "step-00000006", "step-00000008"}) {
				t.Errorf("the run holds %q", left)
			}
			events, err := record.ReadEvents(cfg.Out)
			if err != nil || len(events) != 1 || events[0].Kind != spmd.Alarm || events[0].Step != 4 || events[0].Reason != got.alarms[0].Text {
				t.Errorf("events %+v (%v), want the alarm", events, err)
			}
		})
	}
}

// When a rank cannot go on while all are saving, nobody hangs, and the next run clears away what is
// left.
func TestRankFailsWhileSaving(t *testing.T) {
	t.Parallel()
	for _, rank := range []string{"rank-00000", "rank-00003"} {
		cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery = 500, 3 })
		_, err := on(t, failing(always, "create", "step-00000006.tmp/"+rank, nil), cfg, 4)
		if err == nil || !strings.Contains(err.Error(), "checkpoint of step 6") || !strings.Contains(err.Error(), "a broken disk") {
			t.Errorf("%s: error %v", rank, err)
		}
		cfg.Steps = 7
		if again := train(t, cfg, 4, cfg.Out); again.start.From != 3 || len(again.saved) != 2 {
			t.Errorf("%s: resumed from step %d: %v", rank, again.start.From, again.events)
		}
		if left := folder(t, cfg.Out); !slices.Equal(left, []string{"config.toml", "metrics.jsonl", "step-00000006", "step-00000007"}) {
			t.Errorf("%s: the run holds %q", rank, left)
		}
	}
}

// folder lists the names in a folder, sorted.
func folder(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
