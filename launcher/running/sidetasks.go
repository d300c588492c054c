package running

// Side tasks of a run, in the process that the user started: TensorBoard's events and the page.
// They read the run's record only, so it does not matter which processes are its ranks.

import (
	"errors"
	"flag"
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

// SideTaskFlags choose the side tasks of a run.
type SideTaskFlags struct{ report bool }

// Define defines the flags.
func (f *SideTaskFlags) Define(fs *flag.FlagSet) {
	fs.BoolVar(&f.report, "report", true, "(output) write OUT/report.html, every 30 s while the run goes on")
}

const (
	// eventsEvery is the time between two looks at the run's record.
	eventsEvery = 2 * time.Second
	// pageEvery is the least time between two pages. Writing them takes at most a part in pageShare
	// of the time.
	pageEvery, pageShare = 30 * time.Second, 20
)

// sideTasks are the side tasks of one run.
type sideTasks struct {
	flags  SideTaskFlags
	run    string // its folder
	held   *system.FolderLock
	errOut io.Writer
	stop   chan struct{}
	ended  sync.WaitGroup
}

// Start begins the side tasks of a run. The caller must call End when the run ends. In a rank
// process it returns nil, on which End may be called too.
func (f *SideTaskFlags) Start(cfg config.Config, held *system.FolderLock, env cli.Env) (*sideTasks, error) {
	if !env.ReportsJob() {
		return nil, nil
	}
	t := &sideTasks{flags: *f, run: cfg.Out, held: held, errOut: env.ErrOut, stop: make(chan struct{})}
	t.ended.Go(t.follow)
	return t, nil
}

// End stops the side tasks, which write what is missing.
func (t *sideTasks) End() {
	if t != nil {
		close(t.stop)
		t.ended.Wait()
	}
}

// follow writes events and pages until the run ends. After an error of the events it waits for the
// end, writes all of them again, and warns if that fails too.
func (t *sideTasks) follow() {
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
func (t *sideTasks) page(reload time.Duration) error {
	if !t.flags.report {
		return nil
	}
	if err := t.held.Check(); err != nil {
		return err
	}
	return page.WriteRun(t.run, reload.Seconds())
}

func (t *sideTasks) warn(format string, args ...any) {
	fmt.Fprintf(t.errOut, "launcher: warning: "+format+"\n", args...)
}
