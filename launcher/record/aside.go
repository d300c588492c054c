package record

// Keeping what a run cannot go on with: the record of an earlier run in the same folder, and
// damaged lines.

import (
	"bufio"
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
	for _, name := range []string{File, oldFile, EventsFile} {
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
	path := find(run)
	file, err := system.OpenOwn(run, filepath.Base(path), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, "", nil
	} else if err != nil {
		return 0, "", err
	}
	defer file.Close()
	if lines, err = splitLines(file, io.Discard, io.Discard); err != nil || lines == 0 {
		return 0, "", err
	}
	if now, err = freeName(path + damagedSuffix); err != nil {
		return 0, "", err
	}
	// The damaged lines are safe before the record lacks them.
	for _, part := range []struct {
		path  string
		split func(to io.Writer) (int, error)
	}{
		{now, func(to io.Writer) (int, error) { return splitLines(file, io.Discard, to) }},
		{path, func(to io.Writer) (int, error) { return splitLines(file, to, io.Discard) }},
	} {
		if err := system.WriteTo(part.path, func(to io.Writer) error {
			_, err := part.split(to)
			return err
		}); err != nil {
			return 0, "", err
		}
	}
	return lines, now, nil
}

// splitLines copies the complete lines of a record: those that a reader accepts to whole, others to
// damaged. It returns the number of the latter.
func splitLines(file io.ReadSeeker, whole, damaged io.Writer) (bad int, err error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	in := bufio.NewReaderSize(file, maxLine)
	for long := false; ; {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && !long {
			return bad, nil
		}
		to := damaged
		var l Line
		switch tooLong := errors.Is(err, bufio.ErrBufferFull); {
		case err != nil && !tooLong && !errors.Is(err, io.EOF):
			return bad, err
		case long || tooLong: // its parts follow each other
			if !long {
				bad++
			}
			long = tooLong
		case strictjson.Unmarshal(bytes.TrimSuffix(text, []byte{'\n'}), &l) == nil && l.check() == nil:
			to = whole
		default:
			bad++
		}
		if _, err := to.Write(text); err != nil {
			return bad, err
		}
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
	}
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
