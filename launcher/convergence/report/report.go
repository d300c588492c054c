// Package report shows a finished comparison of precisions: a page for people, plots, and tables for other programs.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/convergence"
	"spmoe/launcher/system"
)

// Plots is the folder, in that of the comparison, with every figure of the page as NAME.svg and NAME.png.
const Plots = "plots"

// Write puts into a folder, which it makes if need be:
//
//	report.html        all of it on one page that needs no other file and no network
//	result.json        r, but for the runs' logs
//	steps.csv          every step of every run
//	summary.csv        an arm a row: losses, differences with their tests, speed
//	quantisation.csv   what quantisation did to each operand in the recorded steps
//	router.csv         how often an arm's routers choose as the baseline's do
//	plots/             see [Plots]
//
// What r has no data for is left out. Each file is complete or as it was before; report.html is the last.
func Write(dir string, r convergence.Result) error {
	r = cleaned(r)
	p := painter{r, looksOf(r.Arms)}
	figures := p.figures()
	texts, err := p.texts(figures)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, Plots), 0o777); err != nil {
		return err
	}
	for _, f := range figures {
		content, err := f.png()
		if err != nil {
			return err
		}
		if err := system.WriteFile(filepath.Join(dir, Plots, f.name+".png"), content); err != nil {
			return err
		}
	}
	if err := removeOthers(filepath.Join(dir, Plots), figures); err != nil {
		return err
	}
	for _, t := range texts {
		if err := system.WriteFile(filepath.Join(dir, t.name), t.content); err != nil {
			return err
		}
	}
	return nil
}

// file is one to be written, its name below the folder of the comparison.
type file struct {
	name    string
	content []byte
}

// texts returns everything but the pictures, the page last.
func (p painter) texts(figures []figure) (files []file, err error) {
	result, err := json.MarshalIndent(p.Result, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("result.json: %w", err)
	}
	files = append(files, file{"result.json", append(result, '\n')})
	for _, t := range tables(p.Result) {
		files = append(files, file{t.name, t.csv()})
	}
	var drawings []drawing
	for _, f := range figures {
		svg, err := f.svg()
		if err != nil {
			return nil, err
		}
		files = append(files, file{filepath.Join(Plots, f.name+".svg"), svg})
		drawings = append(drawings, drawing{f, svg})
	}
	html, err := page(p, drawings)
	if err != nil {
		return nil, err
	}
	return append(files, file{"report.html", html}), nil
}

// removeOthers takes the plots of an earlier result away that this one does not have.
func removeOthers(dir string, figures []figure) error {
	for _, name := range figureNames() {
		if slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			continue
		}
		for _, suffix := range []string{".svg", ".png"} {
			if err := os.Remove(filepath.Join(dir, name+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
