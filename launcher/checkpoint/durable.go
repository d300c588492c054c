package checkpoint

// Durable files and folders: the results of these functions survive a power failure.

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

// chunkBytes is the number of bytes of a file per checksum.
const chunkBytes = 4 << 20

// Small writes are collected into blocks of blockBytes. Large ones go to the disk directly, up to
// mostAtOnce bytes per call. A blocked call occupies a processor of the Go scheduler until the
// scheduler notices, so few long calls cost the training less than many short ones.
const (
	blockBytes = 1 << 20
	mostAtOnce = 32 << 20
)

// directAlignment is the alignment of memory, position and length that direct writes need.
const directAlignment = 4096

// file is the manifest's entry of another file.
type file struct {
	Name   string   `json:"name"`
	Size   int64    `json:"size"`           // bytes
	CRC32C []uint32 `json:"crc32c"`         // of every chunk of chunkBytes; the last one may be shorter
	Sums   Sums     `json:"sums,omitempty"` // of a shard, as training had them; nil: it had none
}

// chunksOf returns the number of chunks of a file of this size.
func chunksOf(size int64) int64 { return (size + chunkBytes - 1) / chunkBytes }

// chunker passes bytes on to a file in whole blocks, and computes the checksums of its chunks.
type chunker struct {
	to io.Writer
	file
	block []byte                   // a partial block; its memory is aligned for direct writes
	seen  func(at int64, p []byte) // if not nil, is called with what the file has taken
}

func newChunker(to io.Writer, name string) *chunker {
	memory := make([]byte, blockBytes+directAlignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % directAlignment
	return &chunker{to: to, file: file{Name: name, CRC32C: []uint32{}}, block: memory[skip : skip : skip+blockBytes]}
}

// Write implements [io.Writer].
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

// aligned reports whether p begins at an address suitable for direct writes.
func aligned(p []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%directAlignment == 0 }

// flush writes the partial block.
func (c *chunker) flush() error {
	if len(c.block) == 0 {
		return nil
	}
	err := c.pass(c.block)
	c.block = c.block[:0]
	return err
}

// pass adds p to the checksums and writes it.
func (c *chunker) pass(p []byte) error {
	at := c.Size
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
	if c.seen != nil {
		c.seen(at, p)
	}
	return err
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

// writeFile creates the file name in folder dir with the content that write writes, durably.
func writeFile(fs Files, dir, name string, write func(*chunker) error) (file, error) {
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
	return writeFile(fs, dir, name, func(out *chunker) error {
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
