// Package figures has only a test: figures of README.md and docs/*.md that were measured are those
// of bench/results, and the code that they measure has not changed too much since.
//
// A result file ends with the values that pages quote, one name per line:
//
//	quoted:
//	small-mfu: 60 % of the peak
//
// A page marks its quotes with <!-- figure: FILE#NAME -->, where FILE is a path in bench/results.
// The figures before the mark are the numbers of that value, in order. They reach back to the
// last mark, or to the start of the table row, list item or paragraph. A mark on a line of its
// own is for all lines below it, up to an empty one. The mark <!-- figure: given --> is for
// figures that are no measurements of this project. A mark must stand where a text links
// bench/results, or has a unit of measurements such as tokens/s.
//
// A cited commit is in the history of the repository, or "(not in the history)" follows it: such
// figures are dated.
//
// Names such as BF16, top-8, 32x2048 and code are no figures. The numbers of a value stand above it
// in its file too, rounded or not.
package figures

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	mark   = regexp.MustCompile(`<!-- figure: (\S+) -->`)
	begins = regexp.MustCompile(`^ *(?:\||[-*] |\d+\. )`)
	number = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d{1,2}\b)?`)
	// names hold digits, but no figures: code, targets of links, dates, versions, shapes, powers
	// and words such as BF16, top-8 and 16B.
	names = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)|https?://\\S+|<!--.*?-->|^ *\\d+\\. " +
		`|\d{4}-\d{2}(?:-\d{2})?|\b202\d\b|\d+(?:\.\d+){2,}|arXiv \S+|\bZen \d|\d+(?:[x/]\d+)*x\d+(?:/\d+)?|\d+[³²⁻]` +
		`|\b\d+[BMTD]\b|\b[\pL_]+(?:-?\d+(?:\.\d+)?[\pL_]*)+|\b\d+-(?:bit|point)\b`)
	// unit is a number with a unit or a comparison that only a measurement has.
	unit = regexp.MustCompile(`\d[\d,.]*(?: \w+)? ?(?:tokens/s|[GT]FLOP/s|[GM]i?B/s|times as (?:fast|long)|% of the (?:\w+ )?peak)`)

	header   = regexp.MustCompile(`(?m)^(?:    |# )?(command|commit|machine|date|measures)s?: +(.*)$`)
	hash     = regexp.MustCompile(`\b[0-9a-f]{7,40}\b`)
	lost     = " (not in the history)" // follows a commit that was never merged
	measures = regexp.MustCompile(`^(\S.*), (\d+) lines$`)
	stat     = regexp.MustCompile(`(\d+) (?:ins|del)`)
)

// quote is a part of a page. Its mark is empty if it has none.
type quote struct {
	page       string
	line, from int // of its block and within it
	text, mark string
}

// figures returns the numbers of a text, as they are written, and where they begin.
func figures(text string) (all []string, at []int) {
	text = names.ReplaceAllStringFunc(text, func(name string) string { return strings.Repeat(" ", len(name)) })
	for _, m := range number.FindAllStringIndex(text, -1) {
		all, at = append(all, text[m[0]:m[1]]), append(at, m[0])
	}
	return all, at
}

// quotes cuts a Markdown text into blocks, and these into quotes.
func quotes(page, text string) (all []quote) {
	var above string
	var blocks []quote
	fenced, open := false, false
	for i, line := range strings.Split(text, "\n") {
		alone := mark.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced, open = !fenced, false
		case strings.TrimSpace(line) == "":
			above, open = "", false
		case !open && alone != nil && alone[0] == line:
			above = alone[1]
		case open && (above != "" || !begins.MatchString(line)):
			blocks[len(blocks)-1].text += "\n" + line
		case above != "" || !fenced && (!strings.HasPrefix(line, "    ") || begins.MatchString(line)):
			blocks, open = append(blocks, quote{page: page, line: i + 1, text: line, mark: above}), true
		}
	}
	for _, b := range blocks {
		end := 0
		for _, m := range mark.FindAllStringSubmatchIndex(b.text, -1) {
			all = append(all, quote{page, b.line, end, b.text[end:m[0]], b.text[m[2]:m[3]]})
			end = m[1]
		}
		if rest := b.text[end:]; end == 0 || strings.Trim(rest, "| \n") != "" {
			all = append(all, quote{page, b.line, end, rest, b.mark})
		}
	}
	return all
}

// fault returns what is wrong with a quote, or an empty string.
func (q quote) fault(values map[string]string) string {
	has, _ := figures(q.text)
	want, known := values[q.mark]
	value, _ := figures(want)
	switch {
	case q.mark == "given" || known && slices.Equal(has, value):
		return ""
	case known:
		return fmt.Sprintf("%s:%d: the figures are %s, but those of %s are %s", q.page, q.line, has, q.mark, value)
	case q.mark != "":
		return fmt.Sprintf("%s:%d: bench/results has no value %s", q.page, q.line, q.mark)
	case len(has) > 0 && (q.from > 0 || strings.Contains(q.text, "bench/results/")) || unit.MatchString(names.ReplaceAllString(q.text, " ")):
		return fmt.Sprintf("%s:%d: %s: mark them with <!-- figure: FILE#NAME -->, or as given", q.page, q.line, has)
	}
	return ""
}

// pages returns the quotes of README.md and docs/*.md.
func pages(t *testing.T) (all []quote) {
	t.Helper()
	for _, page := range append(glob(t, "README.md"), glob(t, "docs/*.md")...) {
		all = append(all, quotes(page, read(t, page))...)
	}
	return all
}

// files returns the paths of all files of results that pages may quote.
func files(t *testing.T) []string {
	t.Helper()
	return slices.Concat(glob(t, "bench/results/*.txt"), glob(t, "bench/results/*.md"), glob(t, "bench/results/*/README.md"))
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(all) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// results returns the values of all files of results, by FILE#NAME, and what is wrong in them.
func results(t *testing.T) (values map[string]string, faults []string) {
	t.Helper()
	values = map[string]string{}
	for _, path := range files(t) {
		text, quoted, _ := strings.Cut(read(t, path), "\nquoted:\n")
		file, err := filepath.Rel(filepath.Join(root, "bench/results"), path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(quoted), "\n") {
			if quoted == "" {
				break
			}
			name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
			key := filepath.ToSlash(file) + "#" + name
			if !ok || values[key] != "" {
				faults = append(faults, fmt.Sprintf("%s: %q: expected NAME: VALUE, each name once", file, line))
			}
			values[key] = value
			if missing := missing(value, text); len(missing) > 0 {
				faults = append(faults, fmt.Sprintf("%s: %s do not stand above, rounded or not", key, missing))
			}
		}
	}
	return values, faults
}

// missing returns the numbers of a value that no number of a text equals when it is rounded.
func missing(value, text string) (all []string) {
	measured := number.FindAllString(text, -1)
	has, _ := figures(value)
	for _, f := range has {
		want, digit := parse(f)
		if !slices.ContainsFunc(measured, func(m string) bool {
			x, fine := parse(m)
			return fine <= digit*(1+1e-9) && math.Abs(x-want) <= digit/2*(1+1e-9)
		}) {
			all = append(all, f)
		}
	}
	return all
}

// parse returns a number and the unit of its last digit: 0.1 for 2.5.
func parse(text string) (value, digit float64) {
	text = strings.ToLower(strings.ReplaceAll(text, ",", ""))
	value, _ = strconv.ParseFloat(text, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent) // 0 if there is none
	return value, math.Pow10(power - len(fraction))
}

// Every quote is marked and equals its value, and every value is quoted.
func TestFigures(t *testing.T) {
	values, faults := results(t)
	unquoted := maps.Clone(values)
	for _, q := range pages(t) {
		delete(unquoted, q.mark)
		if fault := q.fault(values); fault != "" {
			faults = append(faults, fault)
		}
	}
	for _, fault := range append(faults, slices.Sorted(maps.Keys(unquoted))...) {
		t.Error(fault)
	}
}

// Each section of a result file that is quoted names its command, commit, machine and date, and
// what it measures. "FOLDER..., N lines" allows so much Go in these folders to change before it
// must be measured again. Figures that are "dated" describe their commit only. A paragraph with
// some of these lines begins a section, which inherits the others.
func TestResultsAreCurrent(t *testing.T) {
	for _, path := range files(t) {
		text, _, quoted := strings.Cut(read(t, path), "\nquoted:\n")
		if !quoted {
			continue
		}
		section := map[string]string{}
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			found := header.FindAllStringSubmatch(paragraph, -1)
			for _, m := range found {
				section[m[1]] = m[2]
			}
			limit := measures.FindStringSubmatch(section["measures"])
			if len(found) > 0 && strings.Contains(section["commit"], lost) && section["measures"] != "dated" {
				t.Errorf("%s: measures: %q: a commit%s cannot be compared with the code: write measures: dated", path, section["measures"], lost)
			}
			switch commit := hash.FindString(section["commit"]); {
			case len(found) == 0 || commit == "" || section["measures"] == "" || section["measures"] == "dated":
			case limit == nil:
				t.Errorf("%s: measures: %q: expected FOLDER..., N lines; or: dated", path, section["measures"])
			default:
				most, _ := strconv.Atoi(limit[2])
				if n := changed(commit, strings.Fields(limit[1])); n > most {
					t.Errorf("%s: %d lines of %s have changed since %s, and it allows %d: measure again with %s, or write measures: dated",
						path, n, limit[1], commit, most, section["command"])
				}
			}
		}
		for _, key := range []string{"command", "commit", "machine", "date", "measures"} {
			if section[key] == "" {
				t.Errorf("%s has no line %q", path, key+":")
			}
		}
	}
}

// Every commit that a result or a page cites is in the history, or is marked.
func TestCitedCommitsExist(t *testing.T) {
	shallow, err := exec.Command("git", "-C", root, "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skip("this copy of the repository lacks its history")
	}
	output, err := exec.Command("git", "-C", root, "rev-list", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(output))
	slices.Sort(all)
	n := 0
	for _, path := range slices.Concat(files(t), glob(t, "*.md"), glob(t, "docs/*.md"), glob(t, "*/*.md"), glob(t, "*/*/*.md")) {
		for i, line := range strings.Split(read(t, path), "\n") {
			for _, commit := range commits(line) {
				n++
				at, _ := slices.BinarySearch(all, commit)
				known := at < len(all) && strings.HasPrefix(all[at], commit)
				if marked := strings.Contains(line, commit+lost); known == marked {
					t.Errorf("%s:%d: commit %s: in the history: %t, marked with %q: %t", path, i+1, commit, known, lost, marked)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d commits are cited", n)
	}
}

// commits returns the commits that a line cites. A word of 7 to 12 or 40 hexadecimal digits is one
// if it has a letter and a decimal digit and is no number; behind "commit:", in any case. Checksums
// have other lengths.
func commits(line string) (all []string) {
	sure := strings.HasPrefix(strings.TrimSpace(line), "commit:")
	for _, word := range hash.FindAllString(line, -1) {
		_, err := strconv.ParseFloat(word, 64)
		cited := err != nil && strings.ContainsAny(word, "0123456789") && (len(word) <= 12 || len(word) == 40)
		if sure || cited {
			all = append(all, word)
		}
	}
	return all
}

// The README of the results names each file.
func TestResultsAreListed(t *testing.T) {
	list := read(t, filepath.Join(root, "bench/results/README.md"))
	for _, path := range files(t) {
		file, err := filepath.Rel(filepath.Join(root, "bench/results"), path)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.ToSlash(file); name != "README.md" && !strings.Contains(list, "]("+name+")") {
			t.Errorf("bench/results/README.md does not link %s", name)
		}
	}
}

// changed returns the lines of Go that were added to folders and removed since a commit; 0 if the
// commit is not in this clone. Tests and the reference, which no training runs, do not count.
func changed(commit string, folders []string) (lines int) {
	arguments := []string{"-C", root, "diff", "--shortstat", "-M", "-l0", commit, "--", ":!*_test.go", ":!moe/reference"}
	for _, folder := range folders {
		arguments = append(arguments, folder+"/*.go")
	}
	output, _ := exec.Command("git", arguments...).Output() // without output, it has no such commit
	for _, m := range stat.FindAllStringSubmatch(string(output), -1) {
		n, _ := strconv.Atoi(m[1])
		lines += n
	}
	return lines
}
