package docs

// What a program can check of how comments and Markdown are worded. CONTRIBUTING.md has the rules.

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostIdioms is the maximum number of each idiom in the whole repository.
const mostIdioms = 3

// idioms are phrases that read badly in English, each with what to write instead.
var idioms = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(so|as) many\b`), "say how many, or: the same number of"},
	{regexp.MustCompile(`(?i)\bof which\b`), "begin a new sentence"},
	{regexp.MustCompile(`(?i)\bbut for\b`), "except"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bbeside\b`), "next to, with"},
	{regexp.MustCompile(`(?i)\bwhat of\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|somebody)\b`), "name the process, rank, goroutine or caller"},
	{regexp.MustCompile(`(?i)\b(` + counted + `) an? (` + units + `)\b`), "X per Y"},
}

// counted and units are the X and the Y that make "X a Y" mean "X per Y". Nouns that are verbs as
// well, such as runs and calls, are left out.
const (
	counted = `bits|bytes|columns|cores|elements?|entries|entry|experts|floats?|folders?|[kmgt]i?b|gb/s|lines?|messages|milliseconds|ms|` +
		`nats?|once|one|two|three|four|eight|pages|ranks|rows|scales?|seconds|sequences|micro-batches|slots?|tokens|twice|us|values?|` +
		`weights|words?|[0-9][0-9,]*(\.[0-9]+)?`
	units = `block|byte|call|cell|character|checkpoint|chunk|code|column|command|core|cycle|day|element|entry|expert|file|flag|folder|` +
		`format|gpu|group|head|host|hour|kernel|lane|layer|line|machine|matrix|message|microkernel|micro-batch|minute|model|name|node|` +
		`number|package|page|panel|parameter|pass|peer|point|process|product|rank|row|run|sample|second|seed|sentence|sequence|shape|` +
		`shard|side|step|tensor|test|text|thread|tier|tile|token|value|vector|weight|window|word`
)

// comment is a comment of a Go file, or a Markdown file.
type comment struct {
	place, text string
}

// goComments returns the comments of all Go files that were written by hand and are no tests.
func goComments(t *testing.T) (all []comment) {
	t.Helper()
	for name, text := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			all = append(all, comment{fmt.Sprintf("%s:%d", name, files.Position(group.Pos()).Line), group.Text()})
		}
	}
	return all
}

// markdown returns the Markdown files of the repository, except results.
func markdown(t *testing.T) (all []comment) {
	t.Helper()
	for _, pattern := range []string{"*.md", "*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, comment{name, string(text)})
		}
	}
	if len(all) < 5 {
		t.Fatalf("only %d Markdown files", len(all))
	}
	return all
}

func TestIdioms(t *testing.T) {
	texts := append(goComments(t), markdown(t)...)
	for _, idiom := range idioms {
		hits := find(idiom.pattern, texts)
		if len(hits) > mostIdioms {
			t.Errorf("%d places say %v, at most %d may; write instead: %s\n  %s", len(hits), idiom.pattern, mostIdioms, idiom.instead, strings.Join(hits, "\n  "))
		}
	}
}

// find returns the places where a pattern occurs, with some of the text around them.
func find(pattern *regexp.Regexp, texts []comment) (hits []string) {
	for _, c := range texts {
		for paragraph := range strings.SplitSeq(c.text, "\n\n") {
			text := strings.Join(strings.Fields(paragraph), " ")
			for _, at := range pattern.FindAllStringIndex(text, -1) {
				hits = append(hits, fmt.Sprintf("%s: …%s…", c.place, text[max(0, at[0]-30):min(len(text), at[1]+30)]))
			}
		}
	}
	slices.Sort(hits)
	return hits
}

// exported matches the declaration of a name that other packages see.
var exported = regexp.MustCompile(`^(func (\(\w+ \*?[A-Z]\w*(\[\w+\])?\) )?|type |var |const )[A-Z]`)

// TestExportedNamesAreDocumented: a comment stands above or behind each exported name.
func TestExportedNamesAreDocumented(t *testing.T) {
	for name, text := range goFiles(t) {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if exported.MatchString(line) && !strings.HasPrefix(lines[i-1], "//") && !strings.Contains(line, " // ") && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s:%d: %s has no comment", name, i+1, line)
			}
		}
	}
}
