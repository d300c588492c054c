package system

// Reading files from other sources: only regular files, because a pipe would block and a device
// never end, and only up to the expected size.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNotRegular says that a path does not lead to a regular file.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a regular file for reading and returns its size. Anything else is an error at
// once, including a pipe without a writer. It follows links.
func OpenRegular(path string) (file *os.File, size int64, err error) {
	stat, err := os.Stat(path) // before opening, which may have side effects on a device
	if err != nil {
		return nil, 0, err
	}
	if err := regular(path, stat); err != nil {
		return nil, 0, err
	}
	if file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, 0, err
	}
	// Another file may have replaced it between the two calls.
	if stat, err = file.Stat(); err == nil {
		err = regular(path, stat)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, stat.Size(), nil
}

func regular(path string, stat os.FileInfo) error {
	if stat.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s: %w (its mode is %v)", path, ErrNotRegular, stat.Mode())
}

// ReadFile returns the content of a regular file of at most the given size.
func ReadFile(path string, most int64) (content []byte, err error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size <= most { // it may grow while it is read, or report no size
		content, err = io.ReadAll(io.LimitReader(file, most+1))
	}
	if err == nil && max(size, int64(len(content))) > most {
		err = fmt.Errorf("%s: %d or more bytes are too long: expected at most %d", path, max(size, int64(len(content))), most)
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}
