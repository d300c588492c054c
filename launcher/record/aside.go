package record

// Keeping the record of an earlier run in the same folder.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/launcher/system"
)

// asideSuffix is added to the names of files that are set aside; a number follows if the name is
// taken.
const asideSuffix = ".old"

// SetAside renames the record and the events of an earlier run in a folder, which a new run would
// replace. It returns the new path of the record, which is empty if there was nothing to rename.
func SetAside(run string) (now string, err error) {
	for _, name := range []string{File, EventsFile} {
		path := filepath.Join(run, name)
		stat, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && stat.Mode().IsRegular() && stat.Size() == 0 {
			continue
		} else if err != nil {
			return now, err
		}
		free, err := system.FreeName(path + asideSuffix)
		if err == nil {
			err = os.Rename(path, free)
		}
		if err != nil {
			return now, err
		}
		if now == "" {
			now = free
		}
	}
	return now, nil
}
