// Package runs makes the page of several runs: their results, settings that differ, and curves.
package runs

import (
	"fmt"
	"path/filepath"

	"spmoe/launcher/report/overview"
	"spmoe/launcher/system"
)

// File is the name of the page in the folder that holds the runs.
const File = "report.html"

// Most is the maximum number of runs on a page.
const Most = 64

// Write writes the page of some runs to a file. The page needs no other file and no network.
func Write(path string, list []overview.Run) error {
	if len(list) > Most {
		return fmt.Errorf("%d runs are too many for one page: give at most %d", len(list), Most)
	}
	text, err := page(filepath.Dir(path), list)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return system.WriteFile(path, text)
}
