package running

// Side tasks of a run, in the process that the user started: TensorBoard's events and the page.
// They read the run's record only, so it does not matter which processes are its ranks.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/report/export"
	"spmoe/launcher/report/page"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

const (
	// eventsEvery is the time between two looks at the run's record.
	eventsEvery = 2 * time.Second
	// pageEvery is the least time between two pages. Writing them takes at most a part in pageShare
	// of the time.
	pageEvery, pageShare = 30 * time.Second, 20
)

// SideTasks are the side tasks of one run.
type SideTasks struct {
	run    string // its folder
	report bool   // write the page
	held   *system.FolderLock
	errOut io.Writer
	stop   chan struct{}
	ended  sync.WaitGroup
}

// StartSideTasks begins the side tasks of a run. The caller must call End when the run ends. In a
// rank process it returns nil, on which End may be called too.
func StartSideTasks(cfg config.Config, report bool, held *system.FolderLock, env cli.Env) *SideTasks {
	if !env.ReportsJob() {
		return nil
	}
	t := &SideTasks{run: cfg.Out, report: report, held: held, errOut: env.ErrOut, stop: make(chan struct{})}
	t.ended.Go(t.follow)
	return t
}

// End stops the side tasks, which write what is missing.
func (t *SideTasks) End() {
	if t != nil {
		close(t.stop)
		t.ended.Wait()
	}
}

// follow writes events and pages until the run ends. After an error of the events it waits for the
// end, writes all of them again, and warns if that fails too.
func (t *SideTasks) follow() {
	board := export.OpenTensorBoard(t.run)
	look := time.NewTicker(eventsEvery)
	defer look.Stop()
	var failed error
	var next time.Time // of the page
	for stopped := false; !stopped; {
		select {
		case <-look.C:
		case <-t.stop:
			stopped = true
		}
		if stopped && failed != nil {
			board.Close()
			board, failed = export.OpenTensorBoard(t.run), nil
		}
		if failed == nil {
			if failed = t.held.Check(); failed == nil {
				failed = board.Update()
			}
		}
		if began := time.Now(); !stopped && began.After(next) {
			const between = pageEvery + 2*eventsEvery
			if t.page(between) == nil {
				next = time.Now().Add(max(pageEvery, pageShare*time.Since(began)))
			}
		}
	}
	if err := errors.Join(failed, board.Close()); err != nil {
		t.warn("%s is not complete: %v", filepath.Join(t.run, export.TensorBoardFolder), err)
	}
	if err := t.page(0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.warn("the report was not written: %v", err)
	}
}

// page writes the page of the run if that is asked for. A page of a run that goes on loads itself
// again after some time.
func (t *SideTasks) page(reload time.Duration) error {
	if !t.report {
		return nil
	}
	if err := t.held.Check(); err != nil {
		return err
	}
	return page.WriteRun(t.run, reload.Seconds())
}

func (t *SideTasks) warn(format string, args ...any) {
	fmt.Fprintf(t.errOut, "launcher: warning: "+format+"\n", args...)
}
