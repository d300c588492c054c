package inspecting

// inspect --html: the pages of runs, written from their records.

import (
	"fmt"
	"path/filepath"

	"spmoe/launcher/cli"
	"spmoe/launcher/report/page"
	"spmoe/launcher/running"
)

// writePages writes the page of each run again.
func writePages(folders []string, env cli.Env) error {
	if len(folders) == 0 {
		run, err := running.NewestRun("give its folder, as in launcher inspect RUN --html")
		if err != nil {
			return err
		}
		folders = []string{run}
	}
	for _, run := range folders {
		if err := page.WriteRun(run, 0); err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "%s\n", filepath.Join(run, page.File))
	}
	return nil
}
