package datasets

// A corpus of the user's own files: files of text or of rows, folders and glob patterns.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
)

// find lists the files at paths.
func find(paths []string, opts Options) (source, error) {
	if err := opts.Rules.Validate(); err != nil {
		return source{}, err
	}
	if len(paths) == 0 {
		return source{}, errors.New("no data was given: expected at least one text file or folder of them")
	}
	list := lister{opts: opts, seen: map[string]bool{}}
	for _, given := range paths {
		matches, err := expand(given)
		for _, p := range matches {
			if err == nil {
				err = list.addPath(p)
			}
		}
		if err != nil {
			return source{}, err
		}
	}
	return source{
		name: strings.Join(paths, ", "), files: list.files, field: opts.Field,
		rules: opts.Rules, tokenizer: opts.tokenizer, keep: func([]byte) bool { return true },
	}, nil
}

// lister collects the files of a source, each once.
type lister struct {
	opts  Options
	files []file
	seen  map[string]bool // real paths
}

// add adds the regular file at a real path, unless it is there already.
func (l *lister) add(name, real string, info fs.FileInfo, given bool) error {
	if l.seen[real] {
		return nil
	}
	l.seen[real] = true
	f := file{name: name, path: real, size: info.Size(), given: given}
	err := f.identify(l.opts)
	l.files = append(l.files, f)
	return err
}

// expand returns the paths that a pattern matches, and any other path unchanged.
func expand(given string) ([]string, error) {
	if _, err := os.Lstat(given); err == nil || !strings.ContainsAny(given, "*?[") {
		return []string{given}, nil
	}
	matches, err := filepath.Glob(given)
	if err != nil {
		return nil, fmt.Errorf("data pattern %q: %w: use * for any part of a name, ? for one character, [abc] for one of some", given, err)
	}
	if len(matches) == 0 {
		return nil, fmt.Errorf("data pattern %q matches nothing: expected files or folders (** does not reach into folders: give the folder itself)", given)
	}
	return matches, nil
}

const expectedData = "expected a file of text, JSON Lines or Parquet, or a folder of them"

// Remote reports whether a path of data is an address, such as s3://bucket/folder or hf:org/name.
func Remote(path string) bool {
	scheme, _, ok := strings.Cut(path, "://")
	dataset := strings.HasPrefix(path, "hf:") // as earlier versions named those of Hugging Face
	if !dataset && !ok || scheme == "" || !dataset && strings.ContainsFunc(scheme, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return false
	}
	_, err := os.Lstat(path)
	return err != nil
}

// addPath adds the files at a path that the user gave.
func (l *lister) addPath(given string) error {
	if Remote(given) {
		return fmt.Errorf("data path %q is an address: copy it here, and give the file or folder (hf download --repo-type dataset NAME prints that of a dataset)", given)
	}
	absolute, err := filepath.Abs(given)
	real := absolute
	if err == nil {
		real, err = filepath.EvalSymlinks(absolute)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(real)
	}
	switch {
	case err != nil:
		return fmt.Errorf("data path %q: %w: %s", given, err, expectedData)
	case info.IsDir():
		return l.addFolder(given, filepath.Base(absolute), real)
	case !info.Mode().IsRegular():
		return fmt.Errorf("data path %q is a %v: %s", given, info.Mode().Type(), expectedData)
	}
	return l.add(filepath.Base(absolute), real, info, true)
}

// addFolder adds the files of the folder at root, in lexical order, and names them after name.
func (l *lister) addFolder(given, name, root string) error {
	var files []file
	count := 0
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if at != root && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		real := at
		if entry.Type()&fs.ModeSymlink != 0 {
			if real, entry, err = follow(at, entry); err != nil {
				return err
			}
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		count++
		f, err := newFile(name, root, at, entry)
		if err != nil || l.seen[real] {
			return err
		}
		l.seen[real] = true
		err = f.identify(l.opts)
		files = append(files, f)
		return err
	})
	if err != nil {
		return fmt.Errorf("data folder %q: %w: expected readable text files", given, err)
	}
	if count == 0 {
		return fmt.Errorf("data folder %q has no files: expected text files (hidden ones do not count)", given)
	}
	l.files = append(l.files, textsOrRows(files)...)
	return nil
}

// textsOrRows returns the files of a folder with rows if they have most of its bytes, and otherwise
// all files as texts.
func textsOrRows(files []file) []file {
	var rows, all float64
	for _, f := range files {
		if all += float64(f.size); f.kind.rows() {
			rows += float64(f.size)
		}
	}
	if rows > all/2 {
		kept := slices.DeleteFunc(files, func(f file) bool { return !f.kind.rows() })
		kept[0].others = len(files) - len(kept)
		return kept
	}
	for i := range files {
		if f := &files[i]; f.kind.rows() {
			f.kind, f.packing = plainText, unpacked
		}
	}
	return files
}

// follow returns the real path of a link and its target. For a link to itself, it returns the link.
func follow(link string, entry fs.DirEntry) (string, fs.DirEntry, error) {
	info, err := os.Stat(link)
	if errors.Is(err, syscall.ELOOP) {
		return link, entry, nil
	}
	if err != nil {
		return "", nil, err
	}
	real, err := filepath.EvalSymlinks(link)
	return real, fs.FileInfoToDirEntry(info), err
}

// newFile describes the file at a path below root. The name of its document is prefix followed by
// the path below root.
func newFile(prefix, root, at string, entry fs.DirEntry) (file, error) {
	below, err := filepath.Rel(root, at)
	if err != nil {
		return file{}, err
	}
	info, err := entry.Info()
	if err != nil {
		return file{}, err
	}
	return file{name: path.Join(prefix, filepath.ToSlash(below)), path: at, size: info.Size()}, nil
}
