package arrowipc

// Compressed bodies: each buffer is compressed separately, after 8 bytes with its length.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// unpack returns the want bytes of a buffer of a record batch, which may be a multiple of its own.
func (m message) unpack(b []byte, want int64) ([]byte, error) {
	if m.header.has(3) {
		if c := m.header.table(3); c.u8(0) != compressionZstd || c.u8(1) != 0 {
			return nil, fmt.Errorf("it is compressed with codec %d by method %d: expected none or zstd", c.u8(0), c.u8(1))
		}
		if len(b) < 8 {
			return nil, errors.New("it is compressed and has no length")
		}
		n := int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		if n != -1 { // -1: this one is not compressed
			d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
			if err != nil {
				return nil, err
			}
			defer d.Close()
			if b, err = read(d, n, want, "buffer"); err != nil {
				return nil, err
			}
		}
	}
	if int64(len(b)) < want {
		return nil, fmt.Errorf("it has %d bytes of numbers, expected %d", len(b), want)
	}
	return b[:want], nil
}
