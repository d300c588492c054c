package arrowipc

// The messages of a stream: metadata, which is a flatbuffer, and the body after it.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	continuation = 0xffffffff
	mostMetadata = 16 << 20 // bytes of the metadata of a message
)

// Magic is at the beginning and the end of an Arrow file.
const Magic = "ARROW1"

// A file holds a stream between Magic with its padding and the footer, its length and Magic.
const (
	magicBytes = 8
	magicEnd   = 4 + len(Magic)
)

// endOfStream returns where the stream of a file of size bytes ends, given its last [magicEnd]
// bytes.
func endOfStream(end []byte, size int64) (int64, error) {
	if size < magicBytes+int64(magicEnd) || string(end[4:]) != Magic {
		return 0, errors.New("it is cut off: an Arrow file ends in its magic number")
	}
	n, most := int64(binary.LittleEndian.Uint32(end)), min(mostMetadata, size-magicBytes-int64(magicEnd))
	if n > most {
		return 0, fmt.Errorf("it says that its footer has %d bytes: expected at most %d", n, most)
	}
	return size - int64(magicEnd) - n, nil
}

// message is a message of a stream, before its body is read.
type message struct {
	kind   uint8
	header table
	body   int64 // bytes
}

// stream reads messages. As a reader it is the rest of the current body.
type stream struct {
	r    io.Reader
	left int64 // unread bytes of the current body
}

// schema reads the first message.
func (s *stream) schema() (message, error) {
	m, err := s.next()
	if err == io.EOF || err == nil && m.kind != headerSchema {
		return m, errors.New("it does not begin with a schema")
	}
	return m, err
}

// next skips the rest of the current body and reads the metadata of the next message. io.EOF says
// that the stream has ended.
func (s *stream) next() (message, error) {
	if _, err := io.CopyN(io.Discard, s.r, s.left); err != nil {
		return message{}, cut(err)
	}
	s.left = 0
	var prefix [4]byte
	if _, err := io.ReadFull(s.r, prefix[:]); err == io.EOF {
		return message{}, io.EOF // a stream may end without an end mark
	} else if err != nil {
		return message{}, cut(err)
	}
	size := binary.LittleEndian.Uint32(prefix[:])
	if size == continuation { // missing before format version 0.15
		if _, err := io.ReadFull(s.r, prefix[:]); err != nil {
			return message{}, cut(err)
		}
		size = binary.LittleEndian.Uint32(prefix[:])
	}
	if size == 0 {
		return message{}, io.EOF
	}
	metadata, err := read(s.r, int64(size), mostMetadata, "metadata")
	if err != nil {
		return message{}, err
	}
	m, err := parseMessage(metadata)
	s.left = m.body
	return m, err
}

func parseMessage(metadata []byte) (message, error) {
	f := &buffer{b: metadata}
	root := f.root()
	m := message{root.u8(1), root.table(2), root.i64(3)}
	if f.err == nil && m.body < 0 {
		f.err = fmt.Errorf("a message says that its body has %d bytes", m.body)
	}
	return m, f.err
}

// cut distinguishes the end of a file from other errors.
func cut(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is cut off")
	}
	return err
}

// read returns the next n bytes, of at most most. It allocates memory as they arrive.
func read(r io.Reader, n, most int64, what string) ([]byte, error) {
	if n < 0 || n > most {
		return nil, fmt.Errorf("it says that its %s has %d bytes: expected at most %d", what, n, most)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, n); err != nil {
		return nil, cut(err)
	}
	return b.Bytes(), nil
}

// region is a part of a body.
type region struct{ offset, length int64 }

// region returns buffer i of a record batch.
func (m message) region(i int) (region, error) {
	items, n := m.header.vector(2, 16)
	if i >= n {
		return region{}, fmt.Errorf("a record batch has %d buffers, buffer %d is missing", n, i)
	}
	r := region{int64(binary.LittleEndian.Uint64(items[16*i:])), int64(binary.LittleEndian.Uint64(items[16*i+8:]))}
	if r.offset < 0 || r.length < 0 || r.offset > m.body || r.length > m.body-r.offset {
		return region{}, fmt.Errorf("buffer %d of a record batch is %d bytes at %d of a body of %d", i, r.length, r.offset, m.body)
	}
	return r, nil
}
