package system

// Reading files that somebody else has made: only regular ones, as a pipe would block and a device
// never end, and no more than is expected.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// OpenRegular opens a regular file for reading and returns its size. Anything else is an error at
// once, a pipe that nobody writes to included. Links are followed.
func OpenRegular(path string) (file *os.File, size int64, err error) {
	stat, err := os.Stat(path) // before opening, which may have effects on a device
	if err != nil {
		return nil, 0, err
	}
	if err := regular(path, stat); err != nil {
		return nil, 0, err
	}
	if file, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, 0, err
	}
	// Between the two calls something else may have been put in its place.
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
	return fmt.Errorf("%s: not a regular file (its mode is %v)", path, stat.Mode())
}

// ReadFile returns what a regular file of at most so many bytes holds.
func ReadFile(path string, most int64) (content []byte, err error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size <= most { // it may grow while it is read, or say nothing of its size
		content, err = io.ReadAll(io.LimitReader(file, most+1))
	}
	if err == nil && max(size, int64(len(content))) > most {
		err = fmt.Errorf("%s: %d bytes or more are too long: at most %d are read", path, max(size, int64(len(content))), most)
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}
