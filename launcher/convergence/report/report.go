// Package report presents a finished comparison of precisions: as an HTML page, as plots, and as
// tables for other programs.
package report

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"spmoe/launcher/convergence"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/system"
)

// Write writes these files into a folder, which it creates if necessary:
//
//	report.html        everything on one page that needs no other file and no network
//	result.json        r without the runs' logs
//	steps.csv          every step of every run
//	summary.csv        one row per arm: losses, differences with their tests, speed
//	quantisation.csv   the quantization errors of each operand in the recorded steps
//	router.csv         the share of expert choices that agree with the baseline
//	course.csv         the difference in training loss over the course of the run
//	plots/             every figure of the page, as NAME.svg and NAME.png
//
// Figures without data are left out. Each file is replaced as a whole, report.html last.
func Write(dir string, r convergence.Result) error {
	r = cleaned(r)
	p := painter{r, stylesOf(r.Arms)}
	figures := p.figures()
	texts, err := p.texts(figures)
	if err != nil {
		return err
	}
	if err := figure.WritePlots(dir, figures, figureNames()); err != nil {
		return err
	}
	for _, t := range texts {
		if err := system.WriteFile(filepath.Join(dir, t.name), t.content); err != nil {
			return err
		}
	}
	return nil
}

// file is a file to write. Its name is relative to the folder of the comparison.
type file struct {
	name    string
	content []byte
}

// texts returns all files except the plots, the page last.
func (p painter) texts(figures []figure.Figure) (files []file, err error) {
	result, err := json.MarshalIndent(p.Result, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("result.json: %w", err)
	}
	files = append(files, file{"result.json", append(result, '\n')})
	for _, t := range tables(p.Result) {
		files = append(files, file{t.name, t.csv()})
	}
	html, err := page(p, figures)
	if err != nil {
		return nil, err
	}
	return append(files, file{"report.html", html}), nil
}
