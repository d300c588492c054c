package checkpoint

// Durable files and folders: what these functions have returned from survives a power cut.

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"unsafe"
)

// castagnoli is the CRC32C table: a value, not state.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkBytes is how much of a file one checksum covers.
const chunkBytes = 4 << 20

// Small writes are gathered into blocks of blockBytes. Large ones go to the disk from where they
// are, up to mostAtOnce of them in one call: a blocked call holds on to a processor of the Go
// scheduler until that finds out, so few long calls take less from the training that goes on
// meanwhile than many short ones.
const (
	blockBytes = 1 << 20
	mostAtOnce = 32 << 20
)

// directAlignment is what memory, position and length of a write must be multiples of to go past
// the page cache.
const directAlignment = 4096

// file is what the manifest says of a file beside it.
type file struct {
	Name   string   `json:"name"`
	Size   int64    `json:"size"`   // bytes
	CRC32C []uint32 `json:"crc32c"` // of every chunk of chunkBytes; the last one may be shorter
}

// chunksOf is how many chunks so many bytes make.
func chunksOf(size int64) int64 { return (size + chunkBytes - 1) / chunkBytes }

// chunker passes bytes on to a file in whole blocks, and sums its chunks.
type chunker struct {
	to io.Writer
	file
	block []byte // what is gathered of one; its memory is aligned for direct writes
}

func newChunker(to io.Writer, name string) *chunker {
	memory := make([]byte, blockBytes+directAlignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % directAlignment
	return &chunker{to, file{Name: name, CRC32C: []uint32{}}, memory[skip : skip : skip+blockBytes]}
}

// Write implements io.Writer.
func (c *chunker) Write(p []byte) (n int, err error) {
	for n < len(p) {
		rest := p[n:]
		if len(rest) >= blockBytes && aligned(rest) && len(c.block)%directAlignment == 0 {
			part := rest[:min(mostAtOnce, len(rest)&^(directAlignment-1))]
			if err := errors.Join(c.flush(), c.pass(part)); err != nil {
				return n, err
			}
			n += len(part)
			continue
		}
		part := rest[:min(len(rest), blockBytes-len(c.block))]
		c.block = append(c.block, part...)
		n += len(part)
		if len(c.block) == blockBytes {
			if err := c.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// aligned reports whether p begins where direct writes may.
func aligned(p []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%directAlignment == 0 }

// flush writes what is gathered.
func (c *chunker) flush() error {
	if len(c.block) == 0 {
		return nil
	}
	err := c.pass(c.block)
	c.block = c.block[:0]
	return err
}

// pass sums p and writes it.
func (c *chunker) pass(p []byte) error {
	for rest := p; len(rest) > 0; {
		if c.Size%chunkBytes == 0 {
			c.CRC32C = append(c.CRC32C, 0)
		}
		part := rest[:min(int64(len(rest)), chunkBytes-c.Size%chunkBytes)]
		last := &c.CRC32C[len(c.CRC32C)-1]
		*last = crc32.Update(*last, castagnoli, part)
		c.Size += int64(len(part))
		rest = rest[len(part):]
	}
	_, err := c.to.Write(p)
	return err
}

// describe is what the manifest says of a file with these bytes.
func describe(name string, data []byte) file {
	f := file{Name: name, Size: int64(len(data)), CRC32C: []uint32{}}
	for ; len(data) > 0; data = data[min(chunkBytes, len(data)):] {
		f.CRC32C = append(f.CRC32C, crc32.Checksum(data[:min(chunkBytes, len(data))], castagnoli))
	}
	return f
}

// create makes a file of what write writes and syncs. The file must not exist; after an error it
// does not either.
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

// writeFile makes the file name in folder dir of what write gives, durably.
func writeFile(fs Files, dir, name string, write func(io.Writer) error) (file, error) {
	var written file
	err := create(fs, filepath.Join(dir, name), func(out Output) error {
		c := newChunker(out, name)
		if err := write(c); err != nil {
			return err
		}
		if err := c.flush(); err != nil {
			return err
		}
		written = c.file
		return out.Sync()
	})
	return written, err
}

// writeSmall is writeFile for bytes in memory.
func writeSmall(fs Files, dir, name string, data []byte) (file, error) {
	err := create(fs, filepath.Join(dir, name), func(out Output) error {
		if _, err := out.Write(data); err != nil {
			return err
		}
		return out.Sync()
	})
	return describe(name, data), err
}

// publish moves the finished folder temp to final, in the same parent. A folder that has the final
// name already is moved aside first and deleted last: at every moment one of the two is there under
// a name that readers know.
func publish(fs Files, temp, final string) error {
	replaced := final + replacedSuffix
	if _, err := os.Lstat(final); err == nil {
		if err := removeAll(fs, replaced); err != nil {
			return err
		}
		if err := fs.Rename(final, replaced); err != nil {
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
