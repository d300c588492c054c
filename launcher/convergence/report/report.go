// Package report shows a finished comparison of precisions: a page for people, plots, and tables
// for other programs.
package report

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"spmoe/launcher/convergence"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/system"
)

// Write puts into a folder, which it makes if need be:
//
//	report.html        all of it on one page that needs no other file and no network
//	result.json        r, but for the runs' logs
//	steps.csv          every step of every run
//	summary.csv        an arm a row: losses, differences with their tests, speed
//	quantisation.csv   what quantization did to each operand in the recorded steps
//	router.csv         how often an arm's routers choose as the baseline's do
//	plots/             every figure of the page, as NAME.svg and NAME.png
//
// What r has no data for is left out. Each file is complete or as it was before; report.html is the
// last.
func Write(dir string, r convergence.Result) error {
	r = cleaned(r)
	p := painter{r, looksOf(r.Arms)}
	drawings, err := figure.DrawAll(p.figures())
	if err != nil {
		return err
	}
	texts, err := p.texts(drawings)
	if err != nil {
		return err
	}
	if err := figure.WritePlots(dir, drawings, figureNames()); err != nil {
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

// texts returns everything but the plots, the page last.
func (p painter) texts(drawings []figure.Drawing) (files []file, err error) {
	result, err := json.MarshalIndent(p.Result, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("result.json: %w", err)
	}
	files = append(files, file{"result.json", append(result, '\n')})
	for _, t := range tables(p.Result) {
		files = append(files, file{t.name, t.csv()})
	}
	html, err := page(p, drawings)
	if err != nil {
		return nil, err
	}
	return append(files, file{"report.html", html}), nil
}
