package record

// Reading a record while its run continues, possibly in another process.

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
	path := find(f.run)
	file, err := system.OpenOwn(f.run, filepath.Base(path), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		again = f.at > 0
		f.at, f.lines, f.mark = 0, 0, nil
		return nil, again, nil
	} else if err != nil {
		return nil, false, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	size := stat.Size()
	if !f.unchanged(file, size) {
		again = true
		f.at, f.lines, f.mark = 0, 0, nil
	}
	in := bufio.NewScanner(io.NewSectionReader(file, f.at, size-f.at))
	in.Buffer(nil, maxLine)
	in.Split(endedLines)
	for in.Scan() {
		var l Line
		if err = strictjson.Unmarshal(in.Bytes(), &l); err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, again, fmt.Errorf("%s:%d: %w", path, f.lines+1, err)
		}
		lines = append(lines, l)
		f.lines++
		f.at += int64(len(in.Bytes())) + 1
		f.mark = append(append(f.mark, in.Bytes()...), '\n')
		f.mark = append(f.mark[:0], f.mark[max(0, len(f.mark)-markBytes):]...)
	}
	if err := in.Err(); err != nil {
		return nil, again, fmt.Errorf("%s:%d: %w", path, f.lines+1, err)
	}
	return lines, again, nil
}

// unchanged reports whether a file of that size still begins with what was returned.
func (f *Follower) unchanged(file *os.File, size int64) bool {
	if size < f.at {
		return false
	}
	there := make([]byte, len(f.mark))
	_, err := file.ReadAt(there, f.at-int64(len(there)))
	return err == nil && bytes.Equal(there, f.mark)
}
