package record

// Reading a record while its run continues, possibly in another process.

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/system"
)

// Follower reads the lines of a run's record as they are written. It is not safe for concurrent
// use.
type Follower struct {
	run   string
	at    int64  // bytes returned so far
	lines int    // lines in them
	mark  []byte // the last of those bytes
}

// Follow returns a Follower of the record in the folder of a run, which may not exist yet.
func Follow(run string) *Follower { return &Follower{run: run} }

// markBytes is the number of returned bytes that are compared with the file. It is more than a line
// of a step, whose time is unique.
const markBytes = 512

// Next returns the lines that were added since the last call, without an incomplete last line.
// again says that the lines returned before are no longer valid, because the run has gone back to
// an earlier step. Then lines has all lines from the first.
func (f *Follower) Next() (lines []Line, again bool, err error) {
	file, err := system.OpenOwn(f.run, File, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		again = f.at > 0
		*f = Follower{run: f.run}
		return nil, again, nil
	} else if err != nil {
		return nil, false, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	there := make([]byte, len(f.mark))
	if _, err := file.ReadAt(there, f.at-int64(len(there))); err != nil || !bytes.Equal(there, f.mark) {
		again = true
		*f = Follower{run: f.run}
	}
	text, err := io.ReadAll(io.NewSectionReader(file, f.at, stat.Size()-f.at))
	if err != nil {
		return nil, again, err
	}
	lines, length, err := parse(filepath.Join(f.run, File), text, f.lines)
	if err != nil {
		return nil, again, err
	}
	f.at, f.lines, f.mark = f.at+int64(length), f.lines+len(lines), append(f.mark, text[:length]...)
	f.mark = slices.Clone(f.mark[max(0, len(f.mark)-markBytes):])
	return lines, again, nil
}
