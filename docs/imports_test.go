package docs

// The lists of packages in architecture.md against the imports of the code.

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	guide     = "architecture.md"
	testsOnly = "internal/testing"
)

// line is a line of the guide that names a folder.
type line struct {
	number int
	folder string
	rest   string // what stands behind the folder
}

// section returns the lines of the indented block that follows a line of the guide which contains
// after.
func section(text, after string) (block []line) {
	begun := false
	for i, l := range strings.Split(text, "\n") {
		switch indented := strings.HasPrefix(l, "    "); {
		case !begun:
			begun = strings.Contains(l, after)
		case indented:
			folder, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
			block = append(block, line{i + 1, folder, strings.TrimSpace(rest)})
		case len(block) > 0:
			return block
		}
	}
	return block
}

// standsFor returns the index of the line of a folder, or else of the nearest folder above it; -1
// if none has a line.
func standsFor(lines []line, folder string) int {
	for ; folder != "."; folder = path.Dir(folder) {
		if i := slices.IndexFunc(lines, func(l line) bool { return l.folder == folder }); i >= 0 {
			return i
		}
	}
	return -1
}

// check compares the guide with the imports of the code. wrong has a sentence for each line that is
// not true.
type check struct {
	code  importGraph
	wrong []string
}

func (c *check) report(line int, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf("%s:%d: %s", guide, line, fmt.Sprintf(format, args...)))
}

// layers checks that every folder has a line, that every line has a folder, and that no folder
// imports one of a line above its own.
func (c *check) layers(lines []line) {
	named := map[int]bool{}
	for _, folder := range slices.Sorted(maps.Keys(c.code)) {
		from := standsFor(lines, folder)
		if from < 0 {
			c.report(0, "no line names %s", folder)
			continue
		}
		named[from] = true
		for _, to := range c.code.local(folder) {
			if i := standsFor(lines, to); i >= 0 && i < from {
				c.report(lines[from].number, "%s imports %s, which stands above it (%s)", folder, to, c.code[folder][module+to])
			}
			if within(to, testsOnly) && !within(folder, testsOnly) {
				c.report(lines[from].number, "%s imports %s, which is for tests (%s)", folder, to, c.code[folder][module+to])
			}
		}
	}
	for i, l := range lines {
		if !named[i] {
			c.report(l.number, "%s has no Go code that this line stands for", l.folder)
		}
	}
}

// TestArchitecture: the guide's lists of packages and imports are true.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	code, err := readPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	c := &check{code: code}
	c.layers(section(string(text), "## The packages"))
	for _, imported := range []string{"os", "flag", "time"} {
		if file := code["moe"][imported]; file != "" {
			c.report(0, "moe opens no files and reads no flags and no clocks, and yet %s imports %s", file, imported)
		}
	}
	for _, p := range c.wrong {
		t.Error(p)
	}
	for _, m := range regexp.MustCompile(`(?m)^\w+( --> \w+)+$`).FindAllString(string(text), -1) {
		for nodes := strings.Split(m, " --> "); len(nodes) > 1; nodes = nodes[1:] {
			if !code.imports(nodes[0], nodes[1]) {
				t.Errorf("%s: %s does not import %s", guide, nodes[0], nodes[1])
			}
		}
	}
}
