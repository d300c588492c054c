package gemm

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The measurements and the files that the documentation names exist.
func TestDocumentation(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	doc, log := read("doc.go"), read("../../../bench/results/log.md")
	_, measurements, _ := strings.Cut(doc, "# Measurements")
	titles := regexp.MustCompile(`"(.+)"\n`).FindAllStringSubmatch(measurements, -1)
	if len(titles) == 0 {
		t.Error("no measurements are named")
	}
	for _, title := range titles {
		if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(title[1])).MatchString(log) {
			t.Errorf("log.md has no entry %q", title[1])
		}
	}
	for _, name := range regexp.MustCompile(`[a-z0-9_]+\.go\b`).FindAllString(doc, -1) {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}
