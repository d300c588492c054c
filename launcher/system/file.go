package system

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
)

// CreateNew creates a file whose name begins with a prefix and did not exist before. The user's
// umask determines its permissions, unlike with [os.CreateTemp].
func CreateNew(dir, prefix string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s%016x", prefix, rand.Uint64())), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// unnamed matches the names of files from CreateNew.
var unnamed = regexp.MustCompile(`^\.(new|record)-[0-9a-f]{16}$`)

// Tidy deletes the files in a folder that killed processes had created with [CreateNew] or
// [WriteFile] and not yet renamed. No process may be writing there.
func Tidy(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if unnamed.MatchString(e.Name()) && e.Type().IsRegular() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// WriteFile replaces the content of a file atomically.
func WriteFile(path string, content []byte) error {
	return WriteTo(path, func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

// WriteTo is WriteFile for what write writes.
func WriteTo(path string, write func(out io.Writer) error) error {
	file, err := CreateNew(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// FreeName returns path, or path-N with the first N that does not exist.
func FreeName(path string) (string, error) {
	name := path
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s-%d", path, n)
	}
}

// SyncFolder makes changes of the names in a folder durable. It takes the results of the call that
// has opened the folder, and closes it.
func SyncFolder(dir *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
