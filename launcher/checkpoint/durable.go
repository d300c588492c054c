package checkpoint

// Durable files and folders: the results of these functions survive a power failure.

import (
	"bufio"
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// castagnoli is the CRC32C table: a value, not state.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkBytes is the number of bytes of a file per checksum.
const chunkBytes = 4 << 20

// blockBytes is the size of the blocks that small writes are collected into, and that small reads
// are served from.
const blockBytes = 1 << 20

// file is the manifest's entry of another file.
type file struct {
	Name   string   `json:"name"`
	Size   int64    `json:"size"`           // bytes
	CRC32C []uint32 `json:"crc32c"`         // of every chunk of chunkBytes; the last one may be shorter
	Sums   Sums     `json:"sums,omitempty"` // of a shard, as training had them; nil: it had none
}

// chunksOf returns the number of chunks of a file of this size.
func chunksOf(size int64) int64 { return (size + chunkBytes - 1) / chunkBytes }

// summedFile writes to a file and computes the checksums of its chunks.
type summedFile struct {
	to io.Writer
	file
}

// Write implements [io.Writer].
func (s *summedFile) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:min(int64(len(p)), int64(n)+chunkBytes-s.Size%chunkBytes)]
		if s.Size%chunkBytes == 0 {
			s.CRC32C = append(s.CRC32C, 0)
		}
		last := &s.CRC32C[len(s.CRC32C)-1]
		*last = crc32.Update(*last, castagnoli, part)
		s.Size += int64(len(part))
		_, err = s.to.Write(part)
		n += len(part)
	}
	return n, err
}

// create creates a file with the content that write writes, and syncs it. The file must not exist;
// after an error it does not exist either.
func create(fs Files, path string, write func(Output) error) error {
	out, err := fs.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(out), out.Close()); err != nil {
		return errors.Join(err, fs.Remove(path))
	}
	return nil
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, blockBytes) }}

// writeFile creates the file name in folder dir with the content that write writes, durably.
func writeFile(fs Files, dir, name string, write func(io.Writer) error) (file, error) {
	s := &summedFile{file: file{Name: name, CRC32C: []uint32{}}}
	err := create(fs, filepath.Join(dir, name), func(out Output) error {
		s.to = out
		blocks := writers.Get().(*bufio.Writer)
		defer writers.Put(blocks)
		blocks.Reset(s)
		if err := cmp.Or(write(blocks), blocks.Flush()); err != nil {
			return err
		}
		return out.Sync()
	})
	return s.file, err
}

// writeSmall is writeFile for bytes in memory.
func writeSmall(fs Files, dir, name string, data []byte) (file, error) {
	return writeFile(fs, dir, name, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// moveOver renames a folder to a name that the remains of another one may have.
func moveOver(fs Files, from, to string) error {
	if err := removeAll(fs, to); err != nil {
		return err
	}
	return fs.Rename(from, to)
}

// publish moves the finished folder temp to final, in the same parent. If there is a folder of that
// name, it is renamed first and deleted last. At every moment one of the two exists under a name
// that readers know.
func publish(fs Files, temp, final string) error {
	replaced := final + replacedSuffix
	if _, err := os.Lstat(final); err == nil {
		if err := moveOver(fs, final, replaced); err != nil {
			return err
		}
	}
	if err := fs.Rename(temp, final); err != nil {
		return err
	}
	if err := fs.SyncDir(filepath.Dir(final)); err != nil {
		return err
	}
	return removeAll(fs, replaced)
}
