// Durable files and folders: what these functions have returned from survives a power cut.
package checkpoint

import (
	"bufio"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// castagnoli is the CRC32C table: a value, not state.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockSize is how much is written, or read and summed, at a time.
const blockSize = 1 << 20

// file is what the manifest says of a file beside it.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`   // bytes
	CRC32C uint32 `json:"crc32c"` // of all bytes
}

// tally passes bytes on to a file, and counts and sums those that it took.
type tally struct {
	to io.Writer
	file
}

func (t *tally) Write(p []byte) (int, error) {
	n, err := t.to.Write(p)
	t.Size += int64(n)
	t.CRC32C = crc32.Update(t.CRC32C, castagnoli, p[:n])
	return n, err
}

// writeFile creates the file name in folder dir with the bytes that write gives, and syncs it. The file must not
// exist; after an error it does not either.
func writeFile(dir, name string, write func(io.Writer) error) (_ file, err error) {
	path := filepath.Join(dir, name)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return file{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	sum := &tally{out, file{Name: name}}
	buffer := bufio.NewWriterSize(sum, blockSize)
	err = write(buffer)
	if err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = out.Sync()
	}
	return sum.file, errors.Join(err, out.Close())
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// makeDir creates a folder and the missing ones above it.
func makeDir(path string) error {
	if stat, err := os.Stat(path); err == nil && stat.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// publish moves the finished folder temp to final, in the same parent. A folder that has the final name already is
// moved aside first and deleted last: at every moment one of the two is there under a name that readers know.
func publish(temp, final string) error {
	replaced := final + replacedSuffix
	if _, err := os.Lstat(final); err == nil {
		if err := os.RemoveAll(replaced); err != nil {
			return err
		}
		if err := os.Rename(final, replaced); err != nil {
			return err
		}
	}
	if err := os.Rename(temp, final); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(final)); err != nil {
		return err
	}
	return os.RemoveAll(replaced)
}
