package main

// The check of all documents, and its report.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report is the result of a check.
type report struct {
	documents []document
	faults    []string
	quoted    []string // each figure with its result files, except those that are given
	current   int      // sections of results that describe the code as it is
	dated     int      // sections that are not compared with newer code
	unknown   int      // sections whose commit is not in this clone
}

// document counts the figures of a file.
type document struct {
	name                    string
	marked, given, unmarked int
}

// checker reads each result file once.
type checker struct {
	root    string
	results map[string][]section // nil for a file with a fault
	report  report
}

// check compares README.md and docs/*.md with bench/results.
func check(root string) (report, error) {
	c := checker{root: root, results: map[string][]section{}}
	if err := c.documents(c.block); err != nil {
		return report{}, err
	}
	err := c.ages()
	slices.Sort(c.report.faults)
	return c.report, err
}

// documents calls visit for each block of README.md and docs/*.md.
func (c *checker) documents(visit func(document string, b block)) error {
	names, err := filepath.Glob(filepath.Join(c.root, "docs", "*.md"))
	if err != nil {
		return err
	}
	for _, name := range append([]string{filepath.Join(c.root, "README.md")}, names...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("%w (%s)", err, usage)
		}
		relative, err := filepath.Rel(c.root, name)
		if err != nil {
			return err
		}
		for _, b := range blocks(string(text)) {
			visit(filepath.ToSlash(relative), b)
		}
	}
	return nil
}

func (c *checker) fault(format string, arguments ...any) {
	c.report.faults = append(c.report.faults, fmt.Sprintf(format, arguments...))
}

// block counts the figures of a block, and looks them up if it is marked.
func (c *checker) block(name string, b block) {
	all := c.report.documents
	if len(all) == 0 || all[len(all)-1].name != name {
		all = append(all, document{name: name})
		c.report.documents = all
	}
	count, figures := &all[len(all)-1], b.figures()
	switch {
	case b.given:
		count.given += len(figures)
	case len(b.results) > 0:
		count.marked += len(figures)
		c.lookUp(name, b, figures)
	default:
		count.unmarked += len(figures)
		for _, f := range figures {
			c.report.quoted = append(c.report.quoted, fmt.Sprintf("%s:%d: %s  unmarked", name, b.line, f.text))
		}
		if match := b.measurement(); match != "" {
			c.fault("%s:%d: %q looks like a measurement: link its file in bench/results, or mark it as <!-- figures: given -->", name, b.line, match)
		}
	}
}

func (c *checker) lookUp(document string, b block, figures []figure) {
	measured := c.measured(b)
	all, close := figuresOf(measured), near(measured, words(b.text), figures)
	results := strings.Join(b.results, ", ")
	for _, f := range figures {
		place := fmt.Sprintf("%s:%d: %s", document, b.line, f.text)
		c.report.quoted = append(c.report.quoted, place+"  "+results)
		switch {
		case len(measured) == 0: // the file has a fault
		case !f.among(all):
			c.fault("%s does not stand in %s", place, results)
		case f.short() && !f.among(close):
			c.fault("%s stands in %s, but on no line that has a word or a longer figure of this text", place, results)
		}
	}
}

// measured returns all lines of the result files of a block.
func (c *checker) measured(b block) (all []line) {
	for _, name := range b.results {
		found, ok := c.results[name]
		if !ok {
			var err error
			if found, err = readSections(c.root, name); err != nil {
				c.fault("%v", err)
			}
			c.results[name] = found
		}
		for _, s := range found {
			all = append(all, s.lines...)
		}
	}
	return all
}

func figuresOf(all []line) (figures []figure) {
	for _, l := range all {
		figures = append(figures, l.figures...)
	}
	return figures
}

// ages compares what has changed since each section with what it allows.
func (c *checker) ages() error {
	for _, sections := range c.results {
		for _, s := range sections {
			if s.dated {
				c.report.dated++
			} else if err := c.age(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) age(s section) error {
	commit := hash.FindString(s.header["commit"])
	changed, err := changedLines(c.root, commit, s.paths)
	switch {
	case errors.Is(err, errNoHistory):
		c.report.unknown++
	case err != nil:
		return err
	case changed > s.most:
		c.fault("%s: %d lines of %s have changed since %s, and it allows %d: measure again with %s, or write measures: dated",
			s.place, changed, strings.Join(s.paths, ", "), commit, s.most, s.header["command"])
	default:
		c.report.current++
	}
	return nil
}

func (r report) print(w io.Writer) {
	fmt.Fprintf(w, "%-24s %8s %8s %8s\n", "figures of", "marked", "given", "unmarked")
	var sum document
	for _, d := range r.documents {
		fmt.Fprintf(w, "%-24s %8d %8d %8d\n", d.name, d.marked, d.given, d.unmarked)
		sum.marked += d.marked
		sum.given += d.given
		sum.unmarked += d.unmarked
	}
	fmt.Fprintf(w, "%-24s %8d %8d %8d\n", "all", sum.marked, sum.given, sum.unmarked)
	fmt.Fprintf(w, "results: %d sections describe current code, %d are dated", r.current, r.dated)
	if r.unknown > 0 {
		fmt.Fprintf(w, "; the age of %d is not checked, because their commits are not in this clone", r.unknown)
	}
	fmt.Fprintln(w)
	for _, fault := range r.faults {
		fmt.Fprintln(w, fault)
	}
}

// list prints each figure with its result files.
func (r report) list(w io.Writer) {
	for _, line := range r.quoted {
		fmt.Fprintln(w, line)
	}
}
