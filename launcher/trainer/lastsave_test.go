package trainer

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/save"
)

// repeats matches the time that is left of 10 minutes, soon after they began.
var repeats = regexp.MustCompile(`trying again for (10m0s|9m\d+s) \(save_retry\)`)

// The last save of a run is repeated until it works, at its end and when it is asked to stop. A
// transient error of a disk does not lose the run.
func TestLastSaveIsRepeated(t *testing.T) {
	t.Parallel()
	for name, disk := range map[string]struct {
		times           int32
		operation, path string
		err             error
	}{
		"one fsync":             {1, "sync", "rank-00001", syscall.EIO},
		"the manifest's, twice": {2, "sync", "manifest.json", syscall.EIO},
		"a disk that was full":  {3, "write", "rank-00000", syscall.ENOSPC},
		"the rename":            {1, "rename", ".tmp", syscall.EIO},
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
			cfg := tiny(t, func(c *config.Config) { c.Steps = 5 })
			err := runOn(t, ctx, failing(disk.times, disk.operation, disk.path, disk.err), cfg, 2, said)
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

// A request to stop ends the attempts to save at once, and without save_retry there is one. The run
// says what is lost. The checkpoint before stays and can be resumed, also if none is kept, when the
// next one cannot begin.
func TestLastSaveIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk   faultyDisk
		keep   int
		retry  bool
		alarms int
	}{
		"stopped":            {failing(always, "create", "step-00000004.tmp/rank-00001", syscall.ENOSPC), 2, true, 1},
		"stopped, keep 0":    {failing(always, "mkdir", "step-00000004.tmp", syscall.ENOSPC), 0, true, 1},
		"without save_retry": {failing(always, "write", "step-00000004.tmp/rank-00001", syscall.ENOSPC), 2, false, 0},
	} {
		cfg := tiny(t, func(cfg *config.Config) { cfg.Keep, cfg.SaveEvery = c.keep, 3 })
		if !c.retry {
			cfg.SaveRetry = 0
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		said := &stopper{cancel: cancel}
		err := runOn(t, ctx, c.disk, cfg, 2, said)
		if unsaved := (*save.UnsavedError)(nil); !errors.As(err, &unsaved) || unsaved.Step != 4 ||
			!strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "the last of this run") {
			t.Errorf("%s: error %v", name, err)
		}
		if len(said.saved) != 1 || len(said.alarms) != c.alarms || len(said.done) != 0 {
			t.Errorf("%s: %q", name, said.events)
		}
		if again := train(t, cfg, 2, cfg.Out); again.start.From != 3 || len(again.saved) != 1 || len(again.done) != 1 {
			t.Errorf("%s: resumed from step %d: %v", name, again.start.From, again.events)
		}
	}
}
