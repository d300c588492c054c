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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/save"
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

// broken is a disk on which operations on some paths fail.
type broken struct {
	checkpoint.Disk
	operation, path string
	err             error         // returned, or a panic if it is nil
	left            *atomic.Int32 // failures before the disk is repaired; nil: it stays broken
}

func (b broken) fail(operation, path string) error {
	if operation != b.operation || !strings.Contains(path, b.path) || b.left != nil && b.left.Add(-1) < 0 {
		return nil
	}
	if b.err == nil {
		panic("a broken disk")
	}
	return &fs.PathError{Op: operation, Path: path, Err: b.err}
}

func (b broken) Create(path string) (checkpoint.Output, error) {
	if err := b.fail("create", path); err != nil {
		return nil, err
	}
	out, err := b.Disk.Create(path)
	return brokenOutput{out, b, path}, err
}

func (b broken) Mkdir(path string) error {
	return errors.Join(b.fail("mkdir", path), b.Disk.Mkdir(path))
}

func (b broken) Rename(from, to string) error {
	if err := b.fail("rename", from); err != nil {
		return err
	}
	return b.Disk.Rename(from, to)
}

func (b broken) SyncDir(path string) error {
	return errors.Join(b.fail("syncdir", path), b.Disk.SyncDir(path))
}

type brokenOutput struct {
	checkpoint.Output
	disk broken
	path string
}

func (o brokenOutput) Write(p []byte) (int, error) {
	if err := o.disk.fail("write", o.path); err != nil {
		n, _ := o.Output.Write(p[:len(p)/2])
		return n, err
	}
	return o.Output.Write(p)
}

func (o brokenOutput) Sync() error { return errors.Join(o.disk.fail("sync", o.path), o.Output.Sync()) }

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
		{"create", step + "/rank-00000", syscall.ENOSPC, true},
		{"write", step + "/rank-00000", syscall.ENOSPC, false},
		{"write", step + "/rank-00001", syscall.ENOSPC, true},
		{"sync", step + "/rank-00001", syscall.EIO, true},
		{"write", step + "/rank-00001-of-00002.receipt", syscall.EDQUOT, true},
		{"sync", step + "/manifest.json", syscall.EIO, true},
		{"write", step + "/manifest.json", syscall.ENOSPC, false},
		{"syncdir", step, syscall.EIO, true},
		{"rename", step, syscall.EIO, true},
	} {
		// The name becomes part of every path.
		t.Run(c.operation+" "+strings.TrimPrefix(c.path, step), func(t *testing.T) {
			cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 8, 2, 99 })
			cfg.SaveAsync = c.async
			got, err := on(t, broken{operation: c.operation, path: c.path, err: c.err}, cfg, 2)
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

// A run whose last save fails has failed, and says why. What was saved before can be resumed.
func TestFailingLastSave(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.SaveRetry = 5, 2, 0 })
	got, err := on(t, broken{operation: "write", path: "step-00000005.tmp/rank-00001", err: syscall.ENOSPC}, cfg, 2)
	for _, want := range []string{"checkpoint of step 5", "the last of this run", "rank-00001", "no space left on device"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if unsaved := (*save.UnsavedError)(nil); !errors.As(err, &unsaved) || unsaved.Step != 5 {
		t.Errorf("error %v", err)
	}
	if len(got.steps) != 5 || len(got.done) != 0 || len(got.alarms) != 0 {
		t.Errorf("%d steps made, the end is reported %d times", len(got.steps), len(got.done))
	}
	if again := train(t, cfg, 2, cfg.Out); again.start.From != 4 || len(again.saved) != 1 || len(again.done) != 1 {
		t.Errorf("resumed from step %d: %v", again.start.From, again.events)
	}
}

// When a rank cannot go on while all are saving, nobody hangs, and the next run clears away what is
// left.
func TestRankFailsWhileSaving(t *testing.T) {
	t.Parallel()
	for _, rank := range []string{"rank-00000", "rank-00001", "rank-00003"} {
		cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery = 500, 3 })
		_, err := on(t, broken{operation: "create", path: "step-00000006.tmp/" + rank}, cfg, 4)
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

// The estimate of a rank's memory counts the copy of the state, where there is one.
func TestSnapshotMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every  config.Interval
		async  bool
		copies bool
	}{{0, true, false}, {5, false, false}, {5, true, true}, {config.Every(time.Minute), true, false}} {
		cfg := tiny(t, func(cfg *config.Config) { cfg.SaveEvery, cfg.SaveAsync = c.every, c.async })
		onRanks(t, cfg, 2, "", func(r *rank) error {
			var held int64
			if r.job.cfg.Copies() {
				r.checkpoints.Saver.AllocateCopies(r.Pieces())
				for _, p := range r.checkpoints.Saver.Snapshot(r.Pieces()) {
					held += 4 * int64(len(p.Data))
				}
			}
			r.checkpoints.Saver.Close()
			estimate := estimate.Memory(cfg, 2).Snapshot
			if (estimate > 0) != c.copies || math.Abs(float64(estimate-held)) > 0.1*float64(held) {
				t.Errorf("saving every %v, asynchronously %t: %d bytes are estimated, held are %d", c.every, c.async, estimate, held)
			}
			return nil
		})
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
