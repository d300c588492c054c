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
	err = scan(filepath.Join(f.run, File), io.NewSectionReader(file, f.at, stat.Size()-f.at), f.lines, func(text []byte) error {
		var l Line
		if err := strictjson.Unmarshal(text, &l); err != nil {
			return err
		} else if err = l.check(); err != nil {
			return err
		}
		lines = append(lines, l)
		f.lines, f.at = f.lines+1, f.at+int64(len(text))+1
		f.mark = append(append(f.mark, text...), '\n')
		f.mark = append(f.mark[:0], f.mark[max(0, len(f.mark)-markBytes):]...)
		return nil
	})
	if err != nil {
		return nil, again, err
	}
	return lines, again, nil
}

// scan calls each with the complete lines of a file, after some that it has before them. An
// incomplete last line, which a crash leaves, is no line.
func scan(path string, file io.Reader, before int, each func(line []byte) error) error {
	in := bufio.NewScanner(file)
	in.Buffer(nil, maxLine)
	in.Split(endedLines)
	for n := before + 1; in.Scan(); n++ {
		before = n
		if err := each(in.Bytes()); err != nil {
			return fmt.Errorf("%s:%d: %w: delete the line, the others stay valid", path, n, err)
		}
	}
	err := in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line has more than %d bytes", maxLine-1)
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %w", path, before+1, err)
	}
	return nil
}

// endedLines is a [bufio.SplitFunc] for complete lines, without their line ends. It drops an
// incomplete last line.
func endedLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
