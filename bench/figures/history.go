package main

// How much the code has changed since a measurement.

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// errNoHistory is returned in a shallow clone, or in a copy without git.
var errNoHistory = errors.New("not in this clone")

var hash = regexp.MustCompile(`\b[0-9a-f]{7,40}\b`)

// changedLines returns the lines of Go that were added and removed in the folders since a commit,
// tests excluded. Moved files count only as far as they changed.
func changedLines(root, commit string, folders []string) (int, error) {
	if exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		return 0, errNoHistory
	}
	arguments := append([]string{"-C", root, "diff", "--numstat", "--find-renames", "-l0", commit, "--"}, folders...)
	output, err := exec.Command("git", arguments...).Output()
	if err != nil {
		return 0, fmt.Errorf("git diff %s: %w", commit, err)
	}
	return countLines(string(output)), nil
}

// countLines adds up what git diff --numstat prints.
func countLines(numstat string) (sum int) {
	for line := range strings.Lines(numstat) {
		fields := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(fields) != 3 || !code(fields[2]) {
			continue
		}
		added, _ := strconv.Atoi(fields[0]) // a binary file has a dash
		removed, _ := strconv.Atoi(fields[1])
		sum += added + removed
	}
	return sum
}

// code reports whether a file is Go and no test. A moved file has the form {OLD => NEW}.
func code(name string) bool {
	name = strings.TrimSuffix(name, "}")
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
