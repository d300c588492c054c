package arrowipc

// Compressed bodies: each buffer is compressed separately, after 8 bytes with its length.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codec decompresses a buffer.
type codec int8

const (
	plain codec = iota - 1
	lz4Frame
	zstdFrame
)

func codecOf(m message) (codec, error) {
	if !m.header.has(3) {
		return plain, nil
	}
	c := m.header.table(3)
	kind, method := c.u8(0), c.u8(1)
	if kind != compressionLZ4Frame && kind != compressionZstd || method != 0 {
		return plain, fmt.Errorf("a body is compressed with codec %d by method %d: expected none, LZ4 or zstd", kind, method)
	}
	return codec(kind), nil
}

// mostRatio bounds the growth of a buffer beyond its first bytes: text is compressed 2 to 20 times,
// a bomb thousands of times.
const (
	mostRatio  = 250
	freeLength = 16 << 20
)

// unpack decompresses a buffer, which may have free bytes regardless of its own size.
func (c codec) unpack(b []byte, free int64) ([]byte, error) {
	if c == plain {
		return b, nil
	}
	if len(b) < 8 {
		return nil, errors.New("it is compressed and has no length")
	}
	n := int64(binary.LittleEndian.Uint64(b))
	if n < -1 || n > mostBuffer || n > free+mostRatio*int64(len(b)) {
		return nil, fmt.Errorf("it says that its %d bytes are %d unpacked, which no text is", len(b), n)
	}
	return c.decompress(b[8:], n)
}

// unpackTo decompresses a buffer that must have n bytes, which may be a large multiple of its own.
func (c codec) unpackTo(b []byte, n int64) ([]byte, error) {
	if c == plain {
		return b, nil
	}
	if len(b) < 8 {
		return nil, errors.New("it is compressed and has no length")
	}
	says := int64(binary.LittleEndian.Uint64(b))
	if says != -1 && says != n {
		return nil, fmt.Errorf("it says that it has %d bytes unpacked, expected %d", says, n)
	}
	return c.decompress(b[8:], says)
}

// decompress returns n bytes; -1: b is not compressed.
func (c codec) decompress(b []byte, n int64) ([]byte, error) {
	if n == -1 {
		return b, nil
	}
	var r io.Reader
	if c == lz4Frame {
		r = lz4.NewReader(bytes.NewReader(b))
	} else {
		d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(mostBuffer), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		r = d
	}
	all, err := read(r, n, mostBuffer, "buffer")
	if err != nil {
		return nil, err
	}
	if extra, err := io.CopyN(io.Discard, r, 1); extra > 0 || err != io.EOF {
		return nil, fmt.Errorf("it is longer than the %d bytes that it says", n)
	}
	return all, nil
}
