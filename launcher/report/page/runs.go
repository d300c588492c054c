package page

// The pages of runs.

import (
	"fmt"
	"os"
	"path/filepath"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// mostRuns is the maximum number of runs on a page.
const mostRuns = 64

// runsPage returns the page of some runs.
func runsPage(list ...Run) Page {
	p := Page{Title: report.Plural(len(list), "run"), Runs: list, Figures: record.Figures()}
	if len(list) == 1 {
		p.Title = list[0].Name
	}
	return p
}

// WriteRun writes the page of a run to its folder. reload is the number of seconds after which it
// will be written again; 0: never.
func WriteRun(folder string, reload float64) error {
	r, err := ReadRun(folder)
	if err != nil {
		return err
	}
	p := runsPage(r)
	p.Reload = reload
	return p.Write(filepath.Join(folder, File))
}

// WriteRuns writes the page of several runs to a file. Runs whose folders have equal names are
// named by their paths.
func WriteRuns(path string, list []Run) error {
	if len(list) > mostRuns {
		return fmt.Errorf("%d runs are too many for one page: give at most %d", len(list), mostRuns)
	}
	names := map[string]int{}
	for _, r := range list {
		names[r.Name]++
	}
	from, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	for i, r := range list {
		if names[r.Name] > 1 {
			list[i].Name = fmt.Sprintf("%d: %s", i+1, filepath.ToSlash(filepath.Clean(r.Folder)))
		}
		own, err := filepath.Abs(filepath.Join(r.Folder, File))
		if err == nil {
			_, err = os.Stat(own)
		}
		if own, failed := filepath.Rel(from, own); err == nil && failed == nil {
			list[i].Link = "./" + filepath.ToSlash(own) // a name with a colon is no scheme
		}
	}
	return runsPage(list...).Write(path)
}
