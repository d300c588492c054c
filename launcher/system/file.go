package system

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
)

// CreateNew makes a file whose name begins with a prefix and was not there before. Who may read it,
// the user's umask says, unlike that of a file of [os.CreateTemp].
func CreateNew(dir, prefix string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s%016x", prefix, rand.Uint64())), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// unnamed is what files of CreateNew are called.
var unnamed = regexp.MustCompile(`^\.(new|record)-[0-9a-f]{16}$`)

// Tidy deletes the files in a folder that processes which were killed had made with [CreateNew], or
// [WriteFile], and not yet renamed. Nobody may be writing there.
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

// WriteFile gives a file new content, all of it or none.
func WriteFile(path string, content []byte) (err error) {
	file, err := CreateNew(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
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
