// Notices writes the licences of all modules that are linked into the launcher, and of Go itself:
//
//	go run ./docs/notices > THIRD_PARTY_NOTICES
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// platforms are those of a release. They differ in the modules that they need.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64"}

// licence matches the names of files with licences and notices.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

func main() {
	text, err := notices(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
	os.Stdout.Write(text)
}

// module is a module in Go's cache.
type module struct {
	path, version, dir string
}

// notices returns the text for the repository whose root folder is given.
func notices(root string) ([]byte, error) {
	modules, err := linked(root)
	if err != nil {
		return nil, err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "The launcher of spmoe contains these modules and Go's standard library, under the licences below.\n")
	for _, m := range append(modules, module{path: "Go", dir: strings.TrimSpace(string(goroot))}) {
		if err := m.write(&out); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// linked returns the modules of all packages that the launcher imports, on all platforms.
func linked(root string) ([]module, error) {
	found := map[module]bool{}
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./launcher")
		list.Dir = root
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		output, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for line := range strings.Lines(string(output)) {
			if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 {
				found[module{f[0], f[1], f[2]}] = true
			}
		}
	}
	var all []module
	for m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// write writes the licence files of a module.
func (m module) write(out *bytes.Buffer) error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return err
	}
	written := 0
	for _, entry := range entries {
		if entry.IsDir() || !licence.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.dir, entry.Name()))
		if err != nil {
			return err
		}
		title := strings.TrimSpace(fmt.Sprintf("%s %s", m.path, m.version)) + ": " + entry.Name()
		fmt.Fprintf(out, "\n%s\n%s\n%s\n", strings.Repeat("=", 80), title, strings.Repeat("=", 80))
		for line := range strings.Lines(string(text)) {
			out.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
		}
		written++
	}
	if written == 0 {
		return fmt.Errorf("%s has no licence file: do not use it, or say in docs/notices what applies", m.path)
	}
	return nil
}
