package export

// The event files of a run: their names, heads and order.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"spmoe/launcher/system"
)

// oldName is the name of the only event file of runs that earlier versions made.
const oldName = "events.out.tfevents.spmoe"

// fileName matches names of event files: events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER, with the
// seconds since 1970 in 10 digits. In the order of their names, files are in the order of time.
var fileName = regexp.MustCompile(`^events\.out\.tfevents\.(\d{10})\..+\.\d+\.\d+$`)

// nameOf returns the name of an event file of this process.
func nameOf(seconds int64) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	host = strings.Map(func(r rune) rune {
		if r == '/' || r <= ' ' {
			return '-'
		}
		return r
	}, host)
	return fmt.Sprintf("events.out.tfevents.%010d.%s.%d.0", seconds, host, os.Getpid())
}

// createFile creates an event file that follows all others in a folder, for framed events. Its head
// has the time of the first of them.
func createFile(dir string, events []byte) (*os.File, error) {
	names, err := eventFiles(dir)
	if err != nil {
		return nil, err
	}
	seconds := time.Now().Unix()
	if len(names) > 0 {
		last, _ := strconv.ParseInt(fileName.FindStringSubmatch(names[len(names)-1])[1], 10, 64)
		seconds = max(seconds, last+1)
	}
	file, err := os.OpenFile(filepath.Join(dir, nameOf(seconds)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(headOf(math.Float64frombits(binary.LittleEndian.Uint64(events[timeAt:])))); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// openAt opens a file to write from a position on. Two processes that add the same events to a file
// write the same bytes to the same place.
func openAt(path string, at int64) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// eventFiles returns the names of the event files in a folder, in order. A file with the old name
// gets a new one.
func eventFiles(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if fileName.MatchString(e.Name()) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	old, err := os.Lstat(filepath.Join(dir, oldName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!old.Mode().IsRegular() || len(names) > 0) {
		return names, nil
	} else if err != nil {
		return nil, err
	}
	name := nameOf(old.ModTime().Unix())
	return []string{name}, os.Rename(filepath.Join(dir, oldName), filepath.Join(dir, name))
}

// headOf returns the head of a file: the version of the format and the time.
func headOf(started float64) []byte { return appendFrame(nil, event{time: started}.marshal()) }

// timeAt is the position of the time in a framed event: behind the frame's length and checksum, and
// the field's tag.
const timeAt = 12 + 1

// hasHead reports whether a file begins with a head, of any time.
func hasHead(text []byte) bool {
	head := len(headOf(0))
	if len(text) < head {
		return false
	}
	other := append([]byte(nil), headOf(0)...)
	copy(other[timeAt:timeAt+8], text[timeAt:])
	end := head - 4
	binary.LittleEndian.PutUint32(other[end:], masked(other[12:end]))
	return bytes.Equal(text[:head], other)
}

// keepCommon cuts the event files in a folder where they begin to differ from content, which is
// framed events, and removes files without a common event. It returns the length of the common
// beginning, and the path and the size of the last file. The path is empty if there is none.
func keepCommon(dir string, content []byte) (kept int, last string, size int64, err error) {
	names, err := eventFiles(dir)
	if err != nil {
		return 0, "", 0, err
	}
	differs := false
	for _, name := range names {
		path := filepath.Join(dir, name)
		text, err := system.ReadFile(path, maxFile)
		if err != nil {
			return 0, "", 0, err
		}
		head, common := len(headOf(0)), 0
		if !differs && hasHead(text) {
			common = commonFrames(text[head:], content[kept:])
		}
		switch {
		case common == 0:
			err = os.Remove(path)
		case head+common < len(text):
			err = os.Truncate(path, int64(head+common))
		}
		if err != nil {
			return 0, "", 0, err
		}
		differs = differs || len(text) > head+common
		if kept += common; common > 0 {
			last, size = path, int64(head+common)
		}
	}
	return kept, last, size, nil
}

// maxFile is far above the size of an event file in bytes.
const maxFile = 4 << 30

// commonFrames returns the length of the frames that two texts begin with. b consists of whole
// frames.
func commonFrames(a, b []byte) (n int) {
	for n+8 <= len(b) {
		size := 16 + int(binary.LittleEndian.Uint64(b[n:]))
		if n+size > len(a) || !bytes.Equal(a[n:n+size], b[n:n+size]) {
			break
		}
		n += size
	}
	return n
}
