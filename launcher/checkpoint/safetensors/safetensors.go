// Package safetensors reads and writes the safetensors file format: an 8-byte little-endian header
// length, a JSON header, then the tensors' raw bytes. Files are not trusted: opening checks every
// claim of a header.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"spmoe/launcher/system"
)

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType string // one of the constants of this package
	Shape []int  // empty for a scalar; must not be modified
	// Offset is the position of the tensor's first byte in the file, and Size the number of its
	// bytes.
	Offset, Size int64
}

// File is an open file whose header has been checked. It is safe for concurrent use until Close.
type File struct {
	name    string
	r       io.ReaderAt
	close   func() error
	tensors []Info // by name
}

// Open opens the file and checks its header: length against the file and the limits, JSON without
// duplicate keys, known dtypes, matching shapes and sizes, tensors that tile the data without hole
// or overlap. The error names the file, the offset and the violated rule. Tensor bytes are read on
// demand, not mapped, so that a file that is truncated later causes an error and not a signal.
func Open(path string) (*File, error) {
	file, size, err := system.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	f, err := NewFile(path, file, size)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.close = file.Close
	return f, nil
}

// NewFile is Open for size bytes that the caller holds open. It makes the same checks, and
// allocates nothing for a claimed length beyond size. The name is for error messages. Closing the
// File leaves r open.
func NewFile(name string, r io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name, r: r, close: func() error { return nil }}
	if err := f.readHeader(size); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (f *File) readHeader(size int64) (err error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return fmt.Errorf("offset 0: %d bytes are too short for the 8-byte header length", size)
	}
	if err := readAt(f.r, prefix[:], 0); err != nil {
		return fmt.Errorf("offset 0: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if most := min(mostHeader(size), size-8); length > uint64(most) {
		return fmt.Errorf("offset 0: header length %d, expected at most %d (%d bytes follow; the limit for a file of %d is %d)",
			length, most, size-8, size, mostHeader(size))
	}
	header := make([]byte, length)
	if err := readAt(f.r, header, 8); err != nil {
		return fmt.Errorf("offset 8: %w", err)
	}
	data := 8 + int64(length)
	f.tensors, err = parseHeader(header, size-data)
	if err != nil {
		return err
	}
	for i := range f.tensors {
		f.tensors[i].Offset += data
	}
	slices.SortFunc(f.tensors, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// readAt fills p from offset off. Unlike a bare ReadAt, it accepts that the file ends right after
// p.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, off, int64(len(p))), p)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Tensors lists all tensors, sorted by name.
func (f *File) Tensors() []Info { return slices.Clone(f.tensors) }

// Info returns the tensor of that name, and whether there is one.
func (f *File) Info(name string) (Info, bool) {
	i, ok := slices.BinarySearchFunc(f.tensors, name, func(t Info, name string) int { return cmp.Compare(t.Name, name) })
	if !ok {
		return Info{}, false
	}
	return f.tensors[i], true
}

// Bytes returns a copy of the tensor's raw little-endian bytes. An unknown name is an error.
func (f *File) Bytes(name string) ([]byte, error) {
	info, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size)
	if err := f.ReadAt(info, data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

// ReadAt fills p with the bytes of a tensor of this file, starting at byte off of the tensor. A
// range outside the tensor is a programming error and panics.
func (f *File) ReadAt(info Info, p []byte, off int64) error {
	if off < 0 || off > info.Size || int64(len(p)) > info.Size-off {
		panic(fmt.Sprintf("safetensors: bytes [%d, %d) of tensor %q, which has %d", off, off+int64(len(p)), info.Name, info.Size))
	}
	if err := readAt(f.r, p, info.Offset+off); err != nil {
		return fmt.Errorf("%s: offset %d: tensor %q: %w", f.name, info.Offset+off, info.Name, err)
	}
	return nil
}

func (f *File) lookup(name string) (Info, error) {
	info, ok := f.Info(name)
	if !ok {
		return Info{}, fmt.Errorf("%s: no tensor %q among its %d", f.name, name, len(f.tensors))
	}
	return info, nil
}

// Close closes the file. No method may be called afterwards.
func (f *File) Close() error { return f.close() }
