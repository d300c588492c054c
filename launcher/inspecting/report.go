package inspecting

// report: the reports of runs, written again from their records, and one page of several runs.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"spmoe/launcher/cli"
	"spmoe/launcher/report/page"
	"spmoe/launcher/running"
)

// reportFlags are the flags of report.
type reportFlags struct{ out string }

// DefineReport defines the flags of report.
func DefineReport(fs *flag.FlagSet) cli.Action {
	f := &reportFlags{}
	fs.StringVar(&f.out, "out", "", "page of several runs to write to `FILE`; default: report.html in the folder that holds the first run")
	return f.run
}

// run writes the report, metrics.csv and TensorBoard events of each run again, and a page of
// all runs if there are several.
func (f *reportFlags) run(_ context.Context, env cli.Env) error {
	folders := env.Args
	if len(folders) == 0 {
		run, err := running.NewestRun("give its folder, as in launcher report RUN")
		if err != nil {
			return err
		}
		folders = []string{run}
	}
	list, err := readRuns(folders, env)
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := page.WriteRun(r.Folder, 0); err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		fmt.Fprintf(env.Out, "%s\n", filepath.Join(r.Folder, page.File))
	}
	if f.out == "" && len(list) == 1 {
		return nil
	}
	if f.out == "" {
		f.out = filepath.Join(filepath.Dir(filepath.Clean(list[0].Folder)), page.File)
	}
	if err := page.WriteRuns(f.out, list); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	fmt.Fprintf(env.Out, "%s\n", f.out)
	return nil
}

// readRuns reads the runs in some folders. Of several paths, such as runs/*, it leaves out those
// that exist and are no runs.
func readRuns(paths []string, env cli.Env) (list []page.Run, err error) {
	for _, path := range paths {
		r, err := page.ReadRun(path)
		if err == nil {
			list = append(list, r)
			continue
		}
		if _, missing := os.Stat(path); missing != nil || len(paths) == 1 || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, err
		}
		if filepath.Base(path) != page.File { // the page of an earlier call
			fmt.Fprintf(env.ErrOut, "launcher: %s is left out: it is not the folder of a run\n", path)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("none of %d paths is the folder of a run: give runs, as in launcher report runs/*", len(paths))
	}
	return list, nil
}
