package main

// Result files: sections, each with the command, commit and machine of its figures.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The first section has all of these lines, in one paragraph or several. A later paragraph with
// such a line begins a section, which inherits the other lines:
//
//	command:  what prints the figures
//	commit:   of the program
//	machine:
//	date:
//	measures: FOLDER..., N lines; or: dated
//
// N is the number of changed lines of Go in these folders up to which the figures count as current.
// Figures that are dated describe that commit only, and are not compared with newer code.
type section struct {
	place  string // file:line of its header
	header map[string]string
	lines  []line
	limit
}

// limit says which code a section measures and by how much this may change.
type limit struct {
	dated bool
	paths []string
	most  int // changed lines
}

var (
	keys     = []string{"command", "commit", "machine", "date", "measures"}
	key      = regexp.MustCompile(`(?m)^(?:    |# )?(command|commit|machine|date|measures)s?: +(.*)$`)
	measures = regexp.MustCompile(`^(\S.*), (\d+) lines$`)
)

// readSections returns the sections of a result file, or of README.md in a folder of results.
func readSections(root, name string) ([]section, error) {
	place := filepath.Join(root, name)
	if info, err := os.Stat(place); err == nil && info.IsDir() {
		name = filepath.ToSlash(filepath.Join(name, "README.md"))
		place = filepath.Join(place, "README.md")
	}
	text, err := os.ReadFile(place)
	if err != nil {
		return nil, err
	}
	return sections(name, string(text))
}

func sections(name, text string) ([]section, error) {
	header := map[string]string{}
	all := []section{{place: name + ":1", header: header}}
	line := 1
	for _, paragraph := range strings.SplitAfter(text, "\n\n") {
		var begins bool
		if header, begins = extend(header, paragraph); begins {
			all = append(all, section{place: fmt.Sprintf("%s:%d", name, line), header: header})
		}
		last := &all[len(all)-1]
		last.lines = append(last.lines, lines(paragraph)...)
		line += strings.Count(paragraph, "\n")
	}
	for i := range all {
		if err := all[i].complete(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// extend returns the header with the lines of a paragraph, and whether these begin a section: they
// do if they replace a line. Otherwise they complete the header of the section that is open.
func extend(header map[string]string, paragraph string) (map[string]string, bool) {
	found := key.FindAllStringSubmatch(paragraph, -1)
	begins := slices.ContainsFunc(found, func(match []string) bool { return header[match[1]] != "" })
	if begins {
		header = maps.Clone(header)
	}
	for _, match := range found {
		header[match[1]] = match[2]
	}
	return header, begins
}

// complete checks that no line of the header is missing, and reads the limit.
func (s *section) complete() (err error) {
	for _, k := range keys {
		if s.header[k] == "" {
			return fmt.Errorf("%s: the header has no line %q", s.place, k+":")
		}
	}
	text := s.header["measures"]
	if text == "dated" {
		s.dated = true
		return nil
	}
	match := measures.FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("%s: measures: %q: expected FOLDER..., N lines, such as: tensor mx moe, 5000 lines; or: dated", s.place, text)
	}
	s.paths = strings.Fields(match[1])
	s.most, err = strconv.Atoi(match[2])
	return err
}
