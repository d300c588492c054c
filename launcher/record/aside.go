package record

// Keeping what a run cannot go on with: the record of an earlier run in the same folder, and
// damaged lines.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/internal/strictjson"
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
		free, err := freeName(path + asideSuffix)
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

// damagedSuffix is added to the name of a record for the file with its damaged lines.
const damagedSuffix = ".bad"

// Repair moves the damaged lines of a run's record to a file of their own, so that the run can go
// on with the rest. It returns their number and the path of that file. An incomplete last line,
// which a crash leaves, is no damage.
func Repair(run string) (lines int, now string, err error) {
	path := filepath.Join(run, File)
	file, err := system.OpenOwn(run, File, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil
	} else if err != nil {
		return 0, "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, "", err
	}
	var whole, damaged []byte
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var l Line
		if len(line) <= maxLine && strictjson.Unmarshal(line[:len(line)-1], &l) == nil && l.check() == nil {
			whole = append(whole, line...)
		} else {
			damaged, lines = append(damaged, line...), lines+1
		}
	}
	if lines == 0 {
		return 0, "", nil
	}
	if now, err = freeName(path + damagedSuffix); err == nil {
		err = system.WriteFile(now, damaged) // they are safe before the record lacks them
	}
	if err == nil {
		err = system.WriteFile(path, whole)
	}
	return lines, now, err
}

// freeName returns path, or path-N with the first N that does not exist.
func freeName(path string) (string, error) {
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
