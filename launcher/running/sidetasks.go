package running

// Side tasks of a run, in the process that the user started: TensorBoard events, metrics.csv, the
// live page, and the report at the end. They read the run's files only, so it does not matter which
// processes are its ranks.

import (
	"context"
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
type SideTaskFlags struct {
	report bool
	http   string
	stay   bool
	pprof  bool

	staying *page.Server // serves the report of the run that has ended; nil: none
}

// Define defines the flags.
func (f *SideTaskFlags) Define(fs *flag.FlagSet) {
	fs.BoolVar(&f.report, "report", true, "(output) write OUT/report.html when the run ends")
	fs.StringVar(&f.http, "http", "", "(output) `ADDR` serve a live page and Prometheus /metrics at ADDR, e.g. 127.0.0.1:6006; port 0: any free one")
	fs.BoolVar(&f.stay, "http-stay", false, "(output) keep serving the page of --http as the run's report when the run has ended, until Ctrl-C")
	fs.BoolVar(&f.pprof, "http-pprof", false, "(output) also serve Go profiles of this process at the address of --http, under /debug/pprof/")
}

// updateEvery is the time between two reads of the run's records.
const updateEvery = 2 * time.Second

// sideTasks are the side tasks of one run.
type sideTasks struct {
	flags  *SideTaskFlags
	cfg    config.Config
	held   *system.FolderLock // the run's folder
	errOut io.Writer
	server *page.Server // nil without --http
	stop   chan struct{}
	files  sync.WaitGroup // those that follow the run's record
	words  sync.Mutex     // of warnings, as these files may fail together
}

// Start begins the side tasks of a run. The caller must call end when the run ends. In a rank
// process it returns nil, on which end may be called too.
func (f *SideTaskFlags) Start(cfg config.Config, held *system.FolderLock, env cli.Env) (*sideTasks, error) {
	if (f.pprof || f.stay) && f.http == "" {
		return nil, errors.New("--http-pprof and --http-stay need --http: add --http ADDR")
	}
	if !env.ReportsJob() {
		return nil, nil
	}
	config, err := config.TOML(cfg)
	if err != nil {
		return nil, err
	}
	t := &sideTasks{flags: f, cfg: cfg, held: held, errOut: env.ErrOut, stop: make(chan struct{})}
	if f.http != "" {
		if t.server, err = page.Listen(page.ServerConfig{Address: f.http, Run: cfg.Out, Connections: pageConnections(), Pprof: f.pprof}); err != nil {
			return nil, fmt.Errorf("--http: %w", err)
		}
		fmt.Fprintf(env.ErrOut, "launcher: live page at http://%s/\n", t.server.Addr())
	}
	t.files.Go(func() {
		t.follow(export.TensorBoardFolder, func(fresh bool) derivedFile {
			return export.OpenTensorBoard(cfg.Out, fresh, func() string { return string(config) })
		})
	})
	t.files.Go(func() { t.follow(export.CSVFile, func(bool) derivedFile { return export.OpenCSV(cfg.Out) }) })
	return t, nil
}

// pageConnections returns the number of connections of the live page: a quarter of the descriptors
// that this process may open. The rest is for starting and replacing ranks.
func pageConnections() int {
	const most = 64
	if limit := system.Descriptors(); limit > 0 {
		return min(limit/4, most)
	}
	return most
}

// derivedFile is a file, or a folder, that follows from the run's record.
type derivedFile interface {
	Update() error // adds what follows from new lines of the record
	Close() error
}

// follow keeps a derived file up to date until end is called. After an error it waits for the end,
// writes the whole file again, and warns if that fails too. fresh says that new events begin a new
// file.
func (t *sideTasks) follow(name string, open func(fresh bool) derivedFile) {
	to := open(true)
	look := time.NewTicker(updateEvery)
	defer look.Stop()
	var err error
	for stopped := false; !stopped; {
		select {
		case <-look.C:
		case <-t.stop:
			stopped = true
		}
		if stopped && err != nil {
			to.Close()
			to, err = open(false), nil
		}
		if err == nil {
			if err = t.held.Check(); err == nil {
				err = to.Update()
			}
		}
	}
	if err = errors.Join(err, to.Close()); err != nil {
		t.warn("%s is not complete: %v", filepath.Join(t.cfg.Out, name), err)
	}
}

// End stops the side tasks and writes the run's report.
func (t *sideTasks) End() {
	if t == nil {
		return
	}
	close(t.stop)
	t.files.Wait()
	if t.flags.report {
		err := t.held.Check()
		if err == nil {
			err = page.WriteRun(t.cfg.Out)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.warn("the report was not written: %v", err)
		}
	}
	if t.server == nil {
		return
	}
	t.server.Finish()
	if t.flags.stay {
		t.flags.staying = t.server
		return
	}
	if err := t.server.Close(); err != nil {
		t.warn("%v", err)
	}
}

// Wait serves the report of a run that has ended well until ctx ends, if --http-stay asks for it.
// By then the run has given back its folder and its memory.
func (f *SideTaskFlags) Wait(ctx context.Context, run error, env cli.Env) error {
	if f.staying == nil {
		return run
	}
	if run == nil && ctx.Err() == nil {
		SetLastWords(ctx, nil)
		fmt.Fprintf(env.ErrOut, "launcher: the report stays at http://%s/ until Ctrl-C\n", f.staying.Addr())
		<-ctx.Done()
	}
	if err := f.staying.Close(); run == nil {
		return err
	}
	return run
}

func (t *sideTasks) warn(format string, args ...any) {
	t.words.Lock()
	defer t.words.Unlock()
	fmt.Fprintf(t.errOut, "launcher: warning: "+format+"\n", args...)
}
