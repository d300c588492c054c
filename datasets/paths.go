package datasets

// A corpus of the user's own: text files, and folders of them.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Open reads a corpus of text files and folders. A folder is read with all its sub-folders.
//
// In a folder, hidden and binary files (a NUL byte; the first 8 KB are looked at before the rest is read) and what is no
// regular file are passed over. Links to files are followed, links to folders inside a folder are not, so that a loop
// of links does no harm; a link to nothing is an error. A file that is reached twice is read once. Documents are named after the last element of
// the given path and their place below it, so that a corpus keeps its fingerprint when it is moved. Bytes are taken as
// they are, in any encoding without NUL.
//
// A path that is missing, unreadable, empty or, given by itself, binary is an error that names it.
func Open(paths []string, opts Options) (*Corpus, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("no data was given: expected at least one text file or folder of them")
	}
	var files []file
	seen := make(map[string]bool) // real paths
	for _, p := range paths {
		found, err := filesAt(p, seen)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	everything := func([]byte) bool { return true }
	return readCorpus(strings.Join(paths, ", "), files, everything, opts.MaxBytes)
}

// filesAt lists the files at a path that the user gave, less those in seen, and adds them to seen.
func filesAt(given string, seen map[string]bool) ([]file, error) {
	const expected = "expected a text file or a folder of them"
	absolute, err := filepath.Abs(given)
	if err != nil {
		return nil, fmt.Errorf("data path %q: %w: %s", given, err, expected)
	}
	real, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return nil, fmt.Errorf("data path %q: %w: %s", given, err, expected)
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, fmt.Errorf("data path %q: %w: %s", given, err, expected)
	}
	name := filepath.Base(absolute)
	switch {
	case info.IsDir():
		return filesBelow(given, name, real, seen)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("data path %q is a %v: %s", given, info.Mode().Type(), expected)
	case seen[real]:
		return nil, nil
	}
	seen[real] = true
	return []file{{name: name, path: real, size: info.Size(), given: true}}, nil
}

// filesBelow lists the files of the folder at root, in lexical order, and names them after name.
func filesBelow(given, name, root string, seen map[string]bool) ([]file, error) {
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
		if seen[real] {
			return nil
		}
		seen[real] = true
		f, err := newFile(name, root, at, entry)
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("data folder %q: %w: expected readable text files", given, err)
	}
	if count == 0 {
		return nil, fmt.Errorf("data folder %q has no files: expected text files (hidden ones do not count)", given)
	}
	return files, nil
}

// follow returns the real path of a link and what it leads to: where it leads back to itself, the link.
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

// newFile describes the file at a path below root; its document is called prefix and then the path below root.
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
