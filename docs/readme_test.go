package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// README.md is an entrance. What does not fit goes into docs.
const mostWords = 900

var (
	remark  = regexp.MustCompile("<!--[^>]*-->|`[0-9a-f]{8}`") // not displayed, or a commit
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\pL\pN _-]`) // from the anchors of headings, by GitHub
)

func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	text = remark.ReplaceAll(text, nil)
	if n := len(strings.Fields(string(text))); n > mostWords {
		t.Errorf("README.md has %d words, at most %d: move some to docs", n, mostWords)
	}
}

func TestLinksExist(t *testing.T) {
	for _, file := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(file.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := file.place
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file.place), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links %s, which does not exist", file.place, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(t, target), m[2]) {
				t.Errorf("%s links the heading #%s of %s, which has none", file.place, m[2], target)
			}
		}
	}
}

// anchors returns the names by which the headings of a Markdown file can be linked.
func anchors(t *testing.T, name string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
