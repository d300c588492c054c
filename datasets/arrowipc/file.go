package arrowipc

// The messages of a file, in the order of its footer.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// blocks reads the messages that a footer lists: first the dictionaries, then the record batches.
// As a reader it is the rest of the current body.
type blocks struct {
	io.Reader
	r    io.ReaderAt
	left int64 // bytes that further messages may have: they do not overlap
	size int64
	list []byte // 24 bytes per message
}

// openBlocks reads the footer of a file of size bytes.
func openBlocks(r io.ReaderAt, size int64) (footer table, b *blocks, err error) {
	ends := func() error { return errors.New("it is cut off: an Arrow file ends in its magic number") }
	const ending = 4 + int64(len(Magic)) // the length of the footer, and the magic number
	if size < 8+ending {
		return footer, nil, ends()
	}
	end := make([]byte, ending)
	if _, err := r.ReadAt(end, size-ending); err != nil {
		return footer, nil, cut(err)
	}
	if string(end[4:]) != Magic {
		return footer, nil, ends()
	}
	n := int64(binary.LittleEndian.Uint32(end))
	if n > size-8-ending {
		n = mostMetadata + 1
	}
	text, err := read(io.NewSectionReader(r, size-ending-n, n), n, mostMetadata, "footer")
	if err != nil {
		return footer, nil, err
	}
	f := &buffer{b: text}
	footer = f.root()
	b = &blocks{r: r, left: size, size: size}
	for _, i := range []int{2, 3} {
		list, _ := footer.vector(i, 24)
		b.list = append(b.list, list...)
	}
	return footer, b, f.err
}

func (b *blocks) next() (message, error) {
	if len(b.list) == 0 {
		return message{}, io.EOF
	}
	at, before := int64(binary.LittleEndian.Uint64(b.list)), int64(int32(binary.LittleEndian.Uint32(b.list[8:])))
	b.list = b.list[24:]
	if at < 0 || before < 8 || at > b.size || before > b.size-at {
		return message{}, fmt.Errorf("its footer says that %d bytes of metadata are at %d of %d", before, at, b.size)
	}
	metadata, err := read(io.NewSectionReader(b.r, at, before), before, mostMetadata, "metadata")
	if err != nil {
		return message{}, err
	}
	length, metadata := binary.LittleEndian.Uint32(metadata), metadata[4:]
	if length == continuation { // missing before format version 0.15
		length, metadata = binary.LittleEndian.Uint32(metadata), metadata[4:]
	}
	if int64(length) > int64(len(metadata)) {
		return message{}, fmt.Errorf("the message at %d has %d bytes of metadata, the footer says %d", at, length, before)
	}
	m, err := parseMessage(metadata[:length])
	if err != nil {
		return m, err
	}
	at += before
	if m.body > b.size-at || before > b.left || m.body > b.left-before {
		return m, fmt.Errorf("the body at %d has %d bytes, of a file of %d", at, m.body, b.size)
	}
	b.left -= before + m.body
	b.Reader = io.NewSectionReader(b.r, at, m.body)
	return m, nil
}
