package trainer

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/save"
)

// failing returns a disk on which an operation on some paths fails a number of times.
func failing(times int32, operation, path string, err error) broken {
	left := new(atomic.Int32)
	left.Store(times)
	return broken{operation: operation, path: path, err: err, left: left}
}

// repeats matches the time that is left of 10 minutes, soon after they began.
var repeats = regexp.MustCompile(`trying again for (10m0s|9m\d+s) \(save_retry\)`)

// The last save of a run is repeated until it works, at its end and when it is asked to stop. A
// transient error of a disk does not lose the run.
func TestLastSaveIsRepeated(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]broken{
		"one fsync":             failing(1, "sync", "rank-00001", syscall.EIO),
		"the manifest's, twice": failing(2, "sync", "manifest.json", syscall.EIO),
		"a disk that was full":  failing(3, "write", "rank-00000", syscall.ENOSPC),
		"a read-only disk":      failing(2, "mkdir", ".tmp", syscall.EROFS),
		"the rename":            failing(1, "rename", ".tmp", syscall.EIO),
		"the folder's sync":     failing(1, "syncdir", ".tmp", syscall.EIO),
	} {
		for _, stopped := range []bool{false, true} {
			want, said := 5, &reports{}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if stopped {
				want, said.onStep = 3, func(s events.Step) {
					if s.Step == 2 {
						cancel()
					}
				}
			}
			disk.left.Store(max(disk.left.Load(), 1)) // the second time
			cfg := tiny(t, func(c *config.Config) { c.Steps = 5 })
			err := runOn(t, ctx, disk, cfg, 2, said)
			if stopped != errors.Is(err, events.ErrInterrupted) || !stopped && err != nil {
				t.Fatalf("%s, stopped %t: %v", name, stopped, err)
			}
			if len(said.saved) != 1 || said.saved[0].Step != want || len(said.done) != 1 {
				t.Errorf("%s, stopped %t: saved %+v, done %+v", name, stopped, said.saved, said.done)
			}
			savedProgress(t, cfg, want)
			if len(said.alarms) != 1 || !strings.Contains(said.alarms[0].Text, "the last of this run, was not saved: ") ||
				!repeats.MatchString(said.alarms[0].Text) {
				t.Errorf("%s, stopped %t: alarms %+v, want one that says so", name, stopped, said.alarms)
			}
		}
	}
}

// stopper asks for a stop as soon as there is an alarm.
type stopper struct {
	reports
	cancel func()
}

func (s *stopper) Alarm(a events.Alarm) {
	s.reports.Alarm(a)
	s.cancel()
}

// A request to stop ends the attempts to save at once. The checkpoint before stays, also if none is
// kept, when the next one cannot begin.
func TestLastSaveIsGivenUp(t *testing.T) {
	t.Parallel()
	for keep, disk := range map[int]broken{
		2: {operation: "create", path: "step-00000004.tmp/rank-00001", err: syscall.ENOSPC},
		0: {operation: "mkdir", path: "step-00000004.tmp", err: syscall.ENOSPC},
	} {
		cfg := tiny(t, func(c *config.Config) { c.Keep, c.SaveEvery = keep, 3 })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		said := &stopper{cancel: cancel}
		err := runOn(t, ctx, disk, cfg, 2, said)
		if unsaved := (*save.UnsavedError)(nil); !errors.As(err, &unsaved) || unsaved.Step != 4 ||
			!strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("keep %d: error %v", keep, err)
		}
		if len(said.saved) != 1 || len(said.alarms) != 1 || len(said.done) != 0 {
			t.Errorf("keep %d: %q", keep, said.events)
		}
		savedProgress(t, cfg, 3)
	}
}

// crowded is a disk that notes how many checkpoints a folder has while the next one is written.
type crowded struct {
	checkpoint.Disk
	dir  string
	most *atomic.Int32
}

func (c crowded) Create(path string) (checkpoint.Output, error) {
	c.most.Store(max(c.most.Load(), int32(checkpoint.Count(c.dir))))
	return c.Disk.Create(path)
}

// A run that keeps none but the newest has it until the next is complete if the disk has room for
// both, also after it has been resumed.
func TestKeepNone(t *testing.T) {
	t.Parallel()
	for keep, want := range map[int][2]int{0: {1, 1}, 1: {2, 2}} {
		cfg := tiny(t, func(c *config.Config) { c.Keep, c.SaveEvery, c.SaveAsync = keep, 2, false })
		disk := crowded{dir: cfg.Out, most: new(atomic.Int32)}
		for _, run := range []struct {
			from  string
			steps int
		}{{"", 6}, {cfg.Out, 10}} {
			cfg.Steps = run.steps
			job, err := Prepare(cfg, 2, run.from, &reports{})
			if err != nil {
				t.Fatal(err)
			}
			job.files = disk
			if err := errors.Join(job.Run(context.Background(), spmd.Goroutines{N: 2}), job.Close()); err != nil {
				t.Fatal(err)
			}
			savedProgress(t, cfg, run.steps)
			if got := [2]int{int(disk.most.Load()), checkpoint.Count(cfg.Out)}; got != want {
				t.Errorf("keep %d, to step %d: %d checkpoints during saves and at the end, want %d", keep, run.steps, got, want)
			}
		}
	}
}
