package inspecting

// inspect --html: the pages of runs, written from their records, and one page of several runs.

import (
	"fmt"
	"path/filepath"

	"spmoe/launcher/cli"
	"spmoe/launcher/report/page"
	"spmoe/launcher/running"
)

// writePages writes the page of each run again, and a page of all runs above the first if there are
// several.
func writePages(folders []string, env cli.Env) error {
	if len(folders) == 0 {
		run, err := running.NewestRun("give its folder, as in launcher inspect RUN --html")
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
	if len(list) == 1 {
		return nil
	}
	out := filepath.Join(filepath.Dir(filepath.Clean(list[0].Folder)), page.File)
	if err := page.WriteRuns(out, list); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	fmt.Fprintf(env.Out, "%s\n", out)
	return nil
}

// readRuns reads the runs in some folders. Of several paths, such as runs/*, it leaves out those
// that are no runs.
func readRuns(paths []string, env cli.Env) (list []page.Run, err error) {
	for _, path := range paths {
		r, err := page.ReadRun(path)
		switch {
		case err == nil:
			list = append(list, r)
		case len(paths) == 1:
			return nil, err
		case filepath.Base(path) != page.File: // the page of an earlier call
			fmt.Fprintf(env.ErrOut, "launcher: %s is left out: %v\n", path, err)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("none of %d paths is the folder of a run: give runs, as in launcher inspect runs/* --html", len(paths))
	}
	return list, nil
}
