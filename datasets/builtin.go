package datasets

// The built-in corpus, so that a first run needs no download: the handwritten Go source and
// Newton's Opticks from the Go installation of the environment variable GOROOT or of the go
// command. If there is none, it is the text inside the program, see package embedded.
//
// It has all *.go files under GOROOT/src, except tests, folders named testdata or vendor or hidden
// from the go command (leading "." or "_"), files marked as generated, and tables (opcodes,
// character classes, coefficients), recognized by few lower-case letters: see leastLowerCase. Go
// 1.26 gives 27 MB in 3300 documents. Another Go version gives another corpus, with another
// fingerprint.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"spmoe/datasets/embedded"
)

const (
	// opticks is the only prose of a Go installation. Its bytes are used in any encoding.
	opticks = "testdata/Isaac.Newton-Opticks.txt"

	// leastLowerCase is the percentage of a-z below which a source file counts as a table of
	// constants, opcodes or numbers. Prose-like Go code has 50 to 65 %; instruction tables and
	// binary coefficients have less than 40 %.
	leastLowerCase = 40
)

// builtinSource lists the built-in corpus.
func builtinSource(opts Options) (source, error) {
	if err := opts.Rules.Validate(); err != nil {
		return source{}, err
	}
	src, text, err := goSource()
	if err != nil {
		return embeddedSource(err, opts)
	}
	files, err := goFiles(src)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no Go files", src)
	}
	if err != nil {
		return source{}, fmt.Errorf("reading the built-in corpus: %w: pass text of your own with --data PATH", err)
	}
	return source{
		name:      src,
		builtin:   text,
		files:     files,
		keep:      handwritten,
		rules:     opts.Rules,
		tokenizer: opts.tokenizer,
	}, nil
}

// embeddedSource lists the text inside the program. without says why it is read.
func embeddedSource(without error, opts Options) (source, error) {
	all, err := embedded.Files()
	if err != nil {
		return source{}, err
	}
	s := source{
		name:    "the text inside the program",
		builtin: describeEmbedded(without),
		keep:    func([]byte) bool { return true },
		rules:   opts.Rules, tokenizer: opts.tokenizer,
	}
	for _, f := range all {
		s.files = append(s.files, file{
			name: f.Name,
			path: f.Name,
			size: int64(len(f.Text)),
			text: f.Text,
		})
	}
	return s, nil
}

// DescribeBuiltin describes the built-in corpus of this machine: where it is, and why.
func DescribeBuiltin() string {
	_, text, err := goSource()
	if err != nil {
		return describeEmbedded(err)
	}
	return text
}

func describeEmbedded(without error) string {
	return fmt.Sprintf("built-in, spmoe's own sources and documentation (%v); --data PATH reads other text", without)
}

// goSource finds the source folder of a Go installation, and describes it. Its error says where
// none was found.
func goSource() (src, text string, err error) {
	root, by := os.Getenv("GOROOT"), "named by GOROOT"
	if root == "" {
		cmd := exec.Command("go", "env", "GOROOT")
		cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local") // this must not download another toolchain
		out, err := cmd.Output()
		if root = strings.TrimSpace(string(out)); err != nil || root == "" {
			return "", "", errors.New("no Go installation found")
		}
		by = "of the go command on the PATH"
	}
	if src, err = filepath.EvalSymlinks(filepath.Join(root, "src")); err != nil {
		return "", "", fmt.Errorf("no Go sources in GOROOT, %q", root)
	}
	return src, fmt.Sprintf("the Go sources in %s (%s, %s)", src, goVersion(filepath.Dir(src)), by), nil
}

// goVersion returns the version of the Go installation at root, such as go1.26.8.
func goVersion(root string) string {
	text, err := readText(filepath.Join(root, "VERSION"), sniffBytes, unpacked)
	version, _, _ := strings.Cut(string(text), "\n")
	if err != nil || version == "" || len(version) > 64 {
		return "unknown version"
	}
	return version
}

// goFiles lists the files of the built-in corpus by name and folder. It does not look at their
// content.
func goFiles(src string) ([]file, error) {
	var files []file
	add := func(path string, entry fs.DirEntry) error {
		f, err := newFile("src", src, path, entry)
		if err == nil {
			files = append(files, f)
		}
		return err
	}
	err := filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err // entry may be nil
		}
		name := entry.Name()
		switch {
		case entry.IsDir():
			if path != src && (name == "testdata" || name == "vendor" || name[0] == '.' || name[0] == '_') {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		return add(path, entry)
	})
	if err != nil {
		return nil, err
	}
	prose := filepath.Join(src, filepath.FromSlash(opticks))
	info, err := os.Stat(prose)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil // some distributions omit test data
	}
	if err != nil {
		return nil, err
	}
	return files, add(prose, fs.FileInfoToDirEntry(info))
}

// handwritten reports whether text was written by a person: it is neither marked as generated
// before its package clause nor a table.
func handwritten(text []byte) bool {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("package ")) {
			break // a generator has the mark further down, in a string, and is not itself generated
		}
		if bytes.Contains(line, []byte("Code generated")) || bytes.Contains(line, []byte("DO NOT EDIT")) {
			return false
		}
	}
	lower := 0
	for _, b := range text {
		if 'a' <= b && b <= 'z' {
			lower++
		}
	}
	return lower*100 >= leastLowerCase*len(text)
}
