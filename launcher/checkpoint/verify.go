package checkpoint

// Verification: every chunk of every file is read and compared with its checksum, on all
// processors.

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// position is a chunk in a list of files.
type position struct {
	file, chunk int
}

// verify compares files with what was written. It returns the error of the first chunk that
// differs, in the order of the files, and names it.
func verify(files []*os.File, want []file) error {
	var all []position
	var largest int64
	for i, f := range want {
		largest = max(largest, f.Size)
		for c := range f.CRC32C {
			all = append(all, position{i, c})
		}
	}
	errs := make([]error, len(all))
	var next atomic.Int64
	var failed atomic.Bool
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		group.Go(func() {
			buffer := make([]byte, min(blockBytes, largest))
			// Chunks are taken in order. When one fails, those before it have been taken, and are
			// completed.
			for i := int(next.Add(1)) - 1; i < len(all) && !failed.Load(); i = int(next.Add(1)) - 1 {
				p := all[i]
				if errs[i] = verifyChunk(files[p.file], want[p.file], p.chunk, buffer); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// verifyChunk reads one chunk, through buffer.
func verifyChunk(r io.ReaderAt, want file, chunk int, buffer []byte) error {
	begin := int64(chunk) * chunkBytes
	end := min(begin+chunkBytes, want.Size)
	var sum uint32
	for at := begin; at < end; {
		part := buffer[:min(int64(len(buffer)), end-at)]
		if n, err := r.ReadAt(part, at); n < len(part) {
			if err == io.EOF {
				return damagef("%s ends at byte %d, it was written with %d", want.Name, at+int64(n), want.Size)
			}
			return fmt.Errorf("%s, bytes %d to %d: %w", want.Name, at, at+int64(len(part))-1, unreadable(err))
		}
		sum = crc32.Update(sum, castagnoli, part)
		at += int64(len(part))
	}
	if sum == want.CRC32C[chunk] {
		return nil
	}
	return damagef("%s is damaged: chunk %d, bytes %d to %d, has CRC32C %08x, it was written with %08x",
		want.Name, chunk, begin, end-1, sum, want.CRC32C[chunk])
}

// ErrDamaged marks errors about a checkpoint that differs from what was written: part of it is
// missing, truncated, changed, or can no longer be read from the disk. Its files do not hold a
// complete state of a run.
var ErrDamaged = errors.New("damaged checkpoint")

// damage marks an error as ErrDamaged without changing its text.
type damage struct{ error }

func (d damage) Is(target error) bool { return target == ErrDamaged }
func (d damage) Unwrap() error        { return d.error }

func damagef(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// unreadable marks a read error as damage if the disk has lost the data.
func unreadable(err error) error {
	if errors.Is(err, syscall.EIO) {
		return damage{err}
	}
	return err
}
