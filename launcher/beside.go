package main

// What goes on beside a run, in the process that was started: its metrics for TensorBoard, a live
// page, and a report at its end. All of it comes from the files of the run, so that it does not
// matter which processes its ranks are, or become.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"spmoe/launcher/report/overview"
	"spmoe/launcher/report/tensorboard"
	"spmoe/launcher/report/web"
	"spmoe/launcher/trainer"
)

// besideFlags say what goes on beside a run.
type besideFlags struct {
	report bool
	http   string
	pprof  bool
}

func (f *besideFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.report, "report", true, "write OUT/report.html and OUT/plots/ at the end of the run")
	fs.StringVar(&f.http, "http", "", "`ADDR` of this machine to show the run at while it goes on, such as 127.0.0.1:6006: a page, and /metrics for Prometheus; port 0: any")
	fs.BoolVar(&f.pprof, "http-pprof", false, "profiles of this process at the address of --http, below /debug/pprof/")
}

// updateEvery is the time between two looks at what a run has recorded.
const updateEvery = 2 * time.Second

// beside is what goes on beside one run.
type beside struct {
	flags  besideFlags
	cfg    trainer.Config
	errOut io.Writer
	server *web.Server // nil: none
	stop   chan struct{}
	ended  chan struct{}
}

// start begins what goes on beside a run, or nothing in the process of a rank: the caller ends it
// when the run has.
func (f besideFlags) start(cfg trainer.Config, env env) (*beside, error) {
	if f.pprof && f.http == "" {
		return nil, errors.New("--http-pprof adds to --http: give an address there")
	}
	if !env.first() {
		return nil, nil
	}
	config, err := trainer.ConfigTOML(cfg)
	if err != nil {
		return nil, err
	}
	b := &beside{flags: f, cfg: cfg, errOut: env.errOut, stop: make(chan struct{}), ended: make(chan struct{})}
	if f.http != "" {
		if b.server, err = web.Listen(f.http, cfg.Out, f.pprof); err != nil {
			return nil, fmt.Errorf("--http: %w", err)
		}
		fmt.Fprintf(env.errOut, "launcher: the run is shown at http://%s/\n", b.server.Addr())
	}
	go b.follow(tensorboard.Open(cfg.Out, func() string { return string(config) }))
	return b, nil
}

// follow keeps the event file up to date, until something goes wrong with it.
func (b *beside) follow(events *tensorboard.Writer) {
	defer close(b.ended)
	look := time.NewTicker(updateEvery)
	defer look.Stop()
	var err error
	for stopped := false; !stopped; {
		select {
		case <-look.C:
		case <-b.stop:
			stopped = true
		}
		if err == nil {
			err = events.Update()
		}
	}
	if err = errors.Join(err, events.Close()); err != nil {
		b.warn("%s is not complete: %v", filepath.Join(b.cfg.Out, tensorboard.Folder), err)
	}
}

// end stops what goes on, and writes the report of what the run has made.
func (b *beside) end() {
	if b == nil {
		return
	}
	close(b.stop)
	<-b.ended
	if b.server != nil {
		if err := b.server.Close(); err != nil {
			b.warn("%v", err)
		}
	}
	if !b.flags.report {
		return
	}
	if err := overview.Write(b.cfg.Out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.warn("the report was not written: %v", err)
	}
}

func (b *beside) warn(format string, args ...any) {
	fmt.Fprintf(b.errOut, "launcher: warning: "+format+"\n", args...)
}
