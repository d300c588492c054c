// Package overview makes the report of one run, finished or running, from the files in its folder:
// a page and its plots.
package overview

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trace"
)

// File is the name of the page in the folder of its run.
const File = "report.html"

// Run is the content of a run's folder.
type Run struct {
	Folder string
	Config string // TOML; empty if missing
	Log    record.Log
	Events []spmd.Event

	Checkpoints []checkpoint.Entry
	Projection  *Projection // nil: none
	Notes       []string    // what could not be read
	Files       []string    // other files and folders of the run that exist
	Linked      bool        // the page lies in the folder, so that it can link to Files
}

// shownFiles are the files and folders that a page names, if they exist.
var shownFiles = []string{"config.toml", record.File, record.EventsFile, trace.File, "tensorboard/", figure.Plots + "/"}

// maxConfig is far above the size of a configuration in bytes.
const maxConfig = 1 << 20

// Read reads the folder of a run. It returns an [fs.ErrNotExist] if the folder has no record.
func Read(folder string) (Run, error) {
	r := Run{Folder: folder}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w: give the folder of a run", err)
	} else if err != nil {
		return r, err
	}
	r.Log = *log
	for i, s := range r.Log.Steps {
		r.Log.Steps[i] = s.With(r.startOf(s.Step))
	}
	text, err := system.ReadFile(filepath.Join(folder, "config.toml"), maxConfig)
	if r.Config = string(text); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Notes = append(r.Notes, err.Error())
	}
	if r.Events, err = record.ReadEvents(folder); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	if r.Checkpoints, err = checkpoint.List(folder); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	if r.Projection, err = readProjection(folder); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	for _, name := range shownFiles {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			r.Files = append(r.Files, name)
		}
	}
	return r, nil
}

// Write writes the report to the folder of a run: [File], a page that needs no other file and no
// network, and each figure as plots/NAME.svg and NAME.png. Each file is either complete or
// unchanged.
func Write(folder string) error {
	r, err := Read(folder)
	if err != nil {
		return err
	}
	figures := r.figures()
	if err := figure.WritePlots(folder, figures, names()); err != nil {
		return err
	}
	if r.Linked = true; !slices.Contains(r.Files, figure.Plots+"/") { // the plots are new
		r.Files = append(r.Files, figure.Plots+"/")
	}
	page, err := r.page("page", "", figures)
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(folder, File), page)
}

// Page returns the page of a run under way in its current state. It loads a script from the given
// address, which keeps the page up to date. Without an address it is the report.
func (r Run) Page(script string) ([]byte, error) { return r.page("page", script, r.figures()) }

// Body returns the content of the main element of a Page, or of the report if the run is not live.
func (r Run) Body(live bool) ([]byte, error) {
	script := ""
	if live {
		script = "live"
	}
	return r.page("body", script, r.figures())
}
