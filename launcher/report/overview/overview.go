// Package overview shows one run, finished or under way, from the files in its folder: a page for
// people, and its plots.
package overview

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

// File is the name of the page in the folder of its run.
const File = "report.html"

// Run is what the folder of a run says.
type Run struct {
	Folder string
	Config string // TOML; empty if it is not there
	Log    record.Log
	Events []spmd.Event

	Projection *Projection // nil: none was made
	Notes      []string    // what could not be read
}

// maxConfig is far above the size of a configuration in bytes.
const maxConfig = 1 << 20

// Read reads the folder of a run. An fs.ErrNotExist says that there is no record in it.
func Read(folder string) (Run, error) {
	r := Run{Folder: folder}
	log, err := record.Read(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%w: give the folder of a run", err)
	} else if err != nil {
		return r, err
	}
	r.Log = *log
	text, err := system.ReadFile(filepath.Join(folder, "config.toml"), maxConfig)
	if r.Config = string(text); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Notes = append(r.Notes, err.Error())
	}
	if r.Events, err = record.ReadEvents(folder); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	if r.Projection, err = readProjection(folder); err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r, nil
}

// Write puts into the folder of a run [File], all of it on one page that needs no other file and no
// network, and every figure of the page as plots/NAME.svg and NAME.png. Each file is complete or as
// it was before.
func Write(folder string) error {
	r, err := Read(folder)
	if err != nil {
		return err
	}
	drawings, err := figure.DrawAll(r.figures())
	if err != nil {
		return err
	}
	page, err := r.page("page", "", drawings)
	if err != nil {
		return err
	}
	if err := figure.WritePlots(folder, drawings, names()); err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(folder, File), page)
}

// Page returns the page of a run as it is now, with a script of an address in it that keeps it up
// to date.
func (r Run) Page(script string) ([]byte, error) { return r.render("page", script) }

// Body returns what the element main of a Page holds.
func (r Run) Body() ([]byte, error) { return r.render("body", "") }

func (r Run) render(name, script string) ([]byte, error) {
	drawings, err := figure.DrawAll(r.figures())
	if err != nil {
		return nil, err
	}
	return r.page(name, script, drawings)
}
