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

	"spmoe/datasets/hub"
)

// Open reads a corpus from files, folders and glob patterns such as c4/*.jsonl.zst, or the built-in
// corpus if there are no paths. It reads a folder with all its sub-folders.
//
// A file is a document, or several if lines that are <|endoftext|> stand between them, as in
// TinyStories; see [EpochRules]. Some files have one document per row: JSON Lines (.jsonl,
// .jsonlines, .ndjson), JSON with an array of objects or with objects one after the other (.json),
// CSV (.csv, .tsv), Parquet (.parquet, .pq) and Arrow, as a stream or a file (.arrow, .arrows,
// .feather, .ipc). Their text is in the field or column that opts names: a string, or a list of
// strings, which are joined with line ends. The items of a JSON array may be the texts themselves.
// All of these, and text, may be compressed with gzip (.gz) or zstd (.zst). If files of rows have
// most of the bytes of a folder, only they are read, because other files next to them describe
// them. Otherwise all its texts are read. Rows without text are skipped, and NUL bytes in rows are
// removed.
//
// In a folder, it skips hidden files, binary files (with a NUL byte; it reads the first 8 KB before
// the rest) and anything except regular files. It follows links to files, but not links to folders
// inside a folder, so that a loop of links does no harm. A dangling link is an error. A file that
// is reached twice is read once. Documents are named after the last element of the given path and
// their path below it, so that a corpus keeps its fingerprint when it is moved. Bytes are not
// interpreted: any encoding without NUL is fine.
//
// hf:NAME[:CONFIG][/SPLIT] is a dataset in the cache of huggingface_hub, see [hub.Find].
// Its documents are named after the dataset and the file's path in the repository.
//
// A path that is missing, unreadable or empty is an error that names it, and so is a binary file
// that is given itself.
func Open(paths []string, opts Options) (*Corpus, error) {
	s, err := sourceAt(paths, opts)
	if err != nil {
		return nil, err
	}
	t, err := s.texts()
	if err != nil {
		return nil, err
	}
	return newCorpora(t)[0], nil
}

// find lists the files at paths.
func find(paths []string, opts Options) (source, error) {
	if err := opts.Rules.Validate(); err != nil {
		return source{}, err
	}
	if len(paths) == 0 {
		return source{}, fmt.Errorf("no data was given: expected at least one text file or folder of them")
	}
	s := source{name: strings.Join(paths, ", "), field: opts.Field, rules: opts.Rules, tokenizer: opts.tokenizer, keep: func([]byte) bool { return true }}
	seen := make(map[string]bool) // real paths
	for _, given := range paths {
		if name, ok := strings.CutPrefix(given, hub.Prefix); ok {
			found, err := filesOfHub(name, opts, seen)
			if err != nil {
				return source{}, err
			}
			s.files = append(s.files, found...)
			continue
		}
		matches, err := expand(given)
		if err != nil {
			return source{}, err
		}
		for _, p := range matches {
			found, err := filesAt(p, opts, seen)
			if err != nil {
				return source{}, err
			}
			s.files = append(s.files, found...)
		}
	}
	return s, nil
}

// filesOfHub lists the files of a dataset in huggingface_hub's cache, where files are links.
func filesOfHub(name string, opts Options, seen map[string]bool) (files []file, err error) {
	all, err := hub.Find(name)
	if err != nil {
		return nil, fmt.Errorf("data %w", err)
	}
	for _, each := range all {
		real, err := filepath.EvalSymlinks(each.Path)
		if err != nil {
			return nil, fmt.Errorf("data %s%s: %w: download it again", hub.Prefix, name, err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || seen[real] {
			continue
		}
		seen[real] = true
		f := file{name: each.Name, path: real, size: info.Size(), given: true}
		if err := f.identify(opts); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
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

const expectedData = "expected a file of text, JSON, CSV, Parquet or Arrow, or a folder of them"

// Remote reports whether a path of data is an address, such as s3://bucket/folder.
func Remote(path string) bool {
	scheme, _, ok := strings.Cut(path, "://")
	if !ok || scheme == "" || strings.ContainsFunc(scheme, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return false
	}
	_, err := os.Lstat(path)
	return err != nil
}

// fetching says how data at an address is copied to this machine.
func fetching(scheme, rest string) string {
	address := fmt.Sprintf("'%s://%s'", scheme, rest)
	command := map[string]string{
		"s3": "aws s3 cp --recursive " + address + " data", "s3a": "aws s3 cp --recursive 's3://" + rest + "' data",
		"gs": "gcloud storage cp -r " + address + " data", "gcs": "gcloud storage cp -r 'gs://" + rest + "' data",
		"hdfs": "hadoop fs -get " + address + " data", "http": "curl -LO " + address, "https": "curl -LO " + address,
		"hf":   "hf download --repo-type dataset " + strings.TrimPrefix(rest, "datasets/") + ", and give hf:" + strings.TrimPrefix(rest, "datasets/"),
		"file": "give the path without file://",
	}[scheme]
	if command == "" {
		command = "with the provider's own program"
	}
	if scheme == "file" {
		return command
	}
	return "copy it here (" + command + "), and give the file or folder"
}

// filesAt lists the files at a path that the user gave, except those in seen, and adds them to
// seen.
func filesAt(given string, opts Options, seen map[string]bool) ([]file, error) {
	const expected = expectedData
	if scheme, rest, ok := strings.Cut(given, "://"); ok && Remote(given) {
		return nil, fmt.Errorf("data path %q is on another machine: %s", given, fetching(scheme, rest))
	}
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
		return filesBelow(given, name, real, opts, seen)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("data path %q is a %v: %s", given, info.Mode().Type(), expected)
	case seen[real]:
		return nil, nil
	}
	seen[real] = true
	f := file{name: name, path: real, size: info.Size(), given: true}
	if err := f.identify(opts); err != nil {
		return nil, err
	}
	return []file{f}, nil
}

// filesBelow lists the files of the folder at root, in lexical order, and names them after name.
func filesBelow(given, name, root string, opts Options, seen map[string]bool) ([]file, error) {
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
		if err == nil {
			err = f.identify(opts)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("data folder %q: %w: expected readable text files", given, err)
	}
	if count == 0 {
		return nil, fmt.Errorf("data folder %q has no files: expected text files (hidden ones do not count)", given)
	}
	return textsOrRows(files), nil
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
