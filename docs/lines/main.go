// Lines holds the size of the source against .ci/lines, which only goes down. Run it in the root of
// the repository:
//
//	go run ./docs/lines          fails if a number is above the file's, or far below
//	go run ./docs/lines -write   writes what has gone down; without a file, all numbers
//
// L counts the lines of hand-written Go without tests, and tokens those of go/scanner in L without
// automatic semicolons. "other" are scripts and C. A Go file whose first line says so is generated;
// .ci/run generates it again. "grant ISSUE L TESTS" allows more lines in all folders together.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	file         = ".ci/lines"
	header       = "# folder    L   tests assembly  tokens: go run ./docs/lines checks it, and -write lowers it\n"
	other        = "other"
	mostOther    = 6100
	mostTokens   = 6.9  // per line of L
	leastRemarks = 0.11 // lines of comments per line of L
	mostLines    = 450  // of a file
)

// The numbers of a folder, and how far each may be below the file's.
const (
	hand = iota // L
	tests
	assembly
	tokens
	kinds
)

var (
	names     = [kinds]string{"L", "tests", "assembly", "tokens"}
	slack     = [kinds]float64{150, 150, 150, 150 * mostTokens} // or 2 %
	generated = regexp.MustCompile(`^// Code generated .* DO NOT EDIT\.\r?\n`)
	scripts   = regexp.MustCompile(`\.(js|css|py|c|cpp|h|sh)$`)
)

// tree is what the repository has, or what the file allows.
type tree struct {
	folders map[string][kinds]int
	remarks int        // lines of L that have only a comment
	long    []string   // files with too many lines
	spare   [kinds]int // sums of grants
	grants  string     // their lines
}

func main() {
	write := flag.Bool("write", false, "write what has gone down to "+file)
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(write bool) error {
	listed, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return err
	}
	now := tree{folders: map[string][kinds]int{}}
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not yet in a commit
		} else if err != nil {
			return err
		}
		now.count(name, text)
	}
	text, err := os.ReadFile(file)
	allowed, wrong := parse(string(text))
	if write && errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(file, []byte(now.String()), 0o666)
	} else if err = errors.Join(err, wrong); err != nil {
		return err
	}
	problems, lower := allowed.compare(now)
	if write {
		err = os.WriteFile(file, []byte(lower), 0o666)
	} else if lower != allowed.String() {
		problems = append(problems, "the code has shrunk: go run ./docs/lines -write makes "+file+"\n"+lower)
	}
	for _, p := range problems {
		err = errors.Join(err, errors.New(p))
	}
	return err
}

// count adds a file.
func (t *tree) count(name string, text []byte) {
	folder, _, _ := strings.Cut(name, "/")
	lines := bytes.Count(text, []byte("\n"))
	var n [kinds]int
	switch isGo := path.Ext(name) == ".go"; {
	case isGo && generated.Match(text):
	case isGo && strings.HasSuffix(name, "_test.go"):
		n[tests] = lines
	case isGo:
		remarks := 0
		n[hand] = lines
		n[tokens], remarks = scan(text)
		t.remarks += remarks
	case path.Ext(name) == ".s":
		n[assembly] = lines
	case scripts.MatchString(name) && !strings.Contains("/"+name, "/testdata/"):
		folder, n[hand] = other, lines
	}
	if n[hand]+n[tests] > mostLines && folder != other {
		t.long = append(t.long, fmt.Sprintf("%s has %d lines, at most %d: split it", name, lines, mostLines))
	}
	if n != [kinds]int{} {
		t.folders[folder] = combine(t.folders[folder], n, func(a, b int) int { return a + b })
	}
}

func combine(a, b [kinds]int, f func(a, b int) int) (c [kinds]int) {
	for i := range c {
		c[i] = f(a[i], b[i])
	}
	return c
}

// scan counts tokens, and lines that have only a comment.
func scan(text []byte) (tokens, remarks int) {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(text)), text, nil, scanner.ScanComments)
	for code := 0; ; { // the last line with a token
		at, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return tokens, remarks
		case kind == token.COMMENT && files.Position(at).Line != code:
			remarks += 1 + strings.Count(literal, "\n")
		case kind == token.COMMENT || kind == token.SEMICOLON && literal == "\n":
		default:
			tokens++
			code = files.Position(at).Line
		}
	}
}

// compare returns what is wrong, and the file's text once it has followed numbers far below it.
func (t tree) compare(now tree) (problems []string, lower string) {
	var over, all [kinds]int
	var where [kinds]string
	next, stale := map[string][kinds]int{}, false
	for name := range now.folders {
		has, may := now.folders[name], t.folders[name]
		for i := range kinds {
			if more := has[i] - may[i]; more > 0 {
				over[i] += more
				where[i] += fmt.Sprintf(", %s has %d instead of %d", name, has[i], may[i])
			}
			stale = stale || float64(may[i]-has[i]) > min(slack[i], 0.02*float64(may[i]))
		}
		next[name] = combine(has, may, func(a, b int) int { return min(a, b) })
		if name != other {
			all = combine(all, has, func(a, b int) int { return a + b })
		}
	}
	for i, name := range names {
		if over[i] > t.spare[i] {
			problems = append(problems, fmt.Sprintf("%s: %d more than %s allows, grants are %d%s", name, over[i], file, t.spare[i], where[i]))
		}
	}
	if n := now.folders[other][hand]; n > mostOther {
		problems = append(problems, fmt.Sprintf("%d lines of scripts and C, at most %d", n, mostOther))
	}
	if x := float64(all[tokens]) / float64(all[hand]); x > mostTokens {
		problems = append(problems, fmt.Sprintf("%.2f tokens per line, at most %.1f: the code is too dense", x, mostTokens))
	}
	if x := float64(now.remarks) / float64(all[hand]); x < leastRemarks {
		problems = append(problems, fmt.Sprintf("%.1f %% of the lines are comments, at least %.0f %%: say why", 100*x, 100*leastRemarks))
	}
	problems = append(problems, now.long...)
	if stale || len(next) < len(t.folders) {
		t.folders = next
	}
	return problems, t.String()
}

// String returns the text of the file.
func (t tree) String() string {
	text := header
	for _, name := range slices.Sorted(maps.Keys(t.folders)) {
		n := t.folders[name]
		text += fmt.Sprintf("%-10s %6d %6d %6d %7d\n", name, n[hand], n[tests], n[assembly], n[tokens])
	}
	return text + t.grants
}

// parse reads the text of the file.
func parse(text string) (t tree, err error) {
	t.folders = map[string][kinds]int{}
	for line := range strings.Lines(text) {
		var name string
		var issue int
		var n [kinds]int
		switch {
		case line[0] == '#':
		case strings.HasPrefix(line, "grant "):
			_, err = fmt.Sscanf(line, "grant %d %d %d\n", &issue, &n[hand], &n[tests])
			n[tokens] = int(mostTokens * float64(n[hand]))
			t.spare = combine(t.spare, n, func(a, b int) int { return a + b })
			t.grants += line
		default:
			_, err = fmt.Sscan(line, &name, &n[hand], &n[tests], &n[assembly], &n[tokens])
			t.folders[name] = n
		}
		if err != nil {
			return t, fmt.Errorf("%s: %q: want FOLDER L TESTS ASSEMBLY TOKENS or grant ISSUE L TESTS", file, line)
		}
	}
	return t, nil
}
