package parquet

// The pages of a column: headers, decompression and strings.

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The types of pages.
const (
	dataPage       = 0
	indexPage      = 1
	dictionaryPage = 2
	dataPageV2     = 3
)

// The compression codecs.
const (
	uncompressed = 0
	snappyCodec  = 1
	gzipCodec    = 2
	zstdCodec    = 6
	lz4Raw       = 7
)

// codecNames are those of codecs that are not read.
var codecNames = map[int64]string{3: "LZO", 4: "Brotli", 5: "LZ4 of Hadoop (commit " + LastFormats + " reads it)"}

// mostRatio bounds the growth of a page beyond its first bytes: text is compressed 2 to 20 times, a
// bomb thousands of times.
const (
	mostRatio  = 250
	freeLength = 16 << 20
)

// pageHeader is the header of a page. Sizes are bytes.
type pageHeader struct {
	kind, size, stored int64 // size is the size after decompression
	values, encoding   int64
	definition         int64 // encoding of the definition levels, version 1
	levels             int64 // bytes of the definition levels, version 2
	packed             bool  // version 2: the values are compressed
}

// mostHeader is above the size of any header with its statistics, which may contain two values.
const mostHeader = 16 << 20

// readHeader reads the header at an offset and returns its length. Headers do not state their
// length, so it reads more until the header is complete.
func readHeader(r io.ReaderAt, offset, most int64) (h pageHeader, length int64, err error) {
	for guess := int64(256); ; guess *= 16 {
		guess = min(guess, most, mostHeader)
		b, err := readSection(r, offset, guess)
		if err != nil {
			return h, 0, err
		}
		d := &decoder{b: b}
		h = header(d)
		if d.err == nil {
			return h, int64(d.at), nil
		}
		if guess == min(most, mostHeader) {
			return h, 0, d.err
		}
	}
}

func header(d *decoder) pageHeader {
	h := pageHeader{kind: -1, packed: true}
	numbers := func(at map[int]*int64) func(int, uint8) bool {
		return func(id int, kind uint8) bool {
			if at[id] == nil || kind != thriftI32 {
				return false
			}
			*at[id] = d.integer()
			return true
		}
	}
	top := numbers(map[int]*int64{1: &h.kind, 2: &h.size, 3: &h.stored})
	first := numbers(map[int]*int64{1: &h.values, 2: &h.encoding, 3: &h.definition})
	second := numbers(map[int]*int64{1: &h.values, 4: &h.encoding, 5: &h.levels})
	d.fields(func(id int, kind uint8) bool {
		switch {
		case (id == 5 || id == 7) && kind == thriftStruct:
			d.fields(first)
		case id == 8 && kind == thriftStruct:
			d.fields(func(id int, kind uint8) bool {
				if id == 7 {
					h.packed = kind == thriftTrue
				}
				return second(id, kind)
			})
		default:
			return top(id, kind)
		}
		return true
	})
	return h
}

// Rows calls each with the strings of all rows in order, nil for null, until it returns an error.
// A string is valid during the call. Errors name the row group.
func (c *Column) Rows(each func([]byte) error) error {
	for i, k := range c.chunks {
		g := group{Column: c, chunk: k, each: each}
		if err := g.read(); err != nil {
			return fmt.Errorf("row group %d: %w", i+1, err)
		}
	}
	return nil
}

// group reads the column's part of a row group.
type group struct {
	*Column
	chunk
	each       func([]byte) error
	dictionary [][]byte
	seen       int64 // values
}

func (g *group) read() error {
	for at, end := g.offset, g.offset+g.size; g.seen < g.values; {
		if at >= end {
			return fmt.Errorf("it has %d values in its pages: expected %d", g.seen, g.values)
		}
		h, length, err := readHeader(g.r, at, end-at)
		if err != nil {
			return err
		}
		at += length
		switch {
		case h.stored < 0 || h.size < 0 || h.stored > end-at || h.stored > mostPage || h.size > mostPage || h.size > freeLength+mostRatio*h.stored:
			return fmt.Errorf("a page says that it has %d bytes, %d unpacked, where %d are left: no text does", h.stored, h.size, end-at)
		case h.values < 0 || h.values > mostValues:
			return fmt.Errorf("a page says that it has %d values: expected at most %d", h.values, mostValues)
		}
		b, err := readSection(g.r, at, h.stored)
		if err != nil {
			return err
		}
		at += h.stored
		switch h.kind {
		case dictionaryPage:
			if b, err = unpack(g.codec, b, h.size); err == nil {
				g.dictionary, err = plainStrings(b, h.values)
			}
		case dataPage, dataPageV2:
			if h.values > g.values-g.seen {
				return fmt.Errorf("its pages hold more than its %d values", g.values)
			}
			if g.seen += h.values; h.values > 0 {
				err = g.page(h, b)
			}
		case indexPage:
		default:
			return fmt.Errorf("a page is of type %d", h.kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// levels splits a data page into its definition levels and its values.
func (g *group) levels(h pageHeader, b []byte) (define, values []byte, err error) {
	if h.kind == dataPageV2 {
		if h.levels < 0 || h.levels > int64(len(b)) {
			return nil, nil, fmt.Errorf("a page of %d bytes has %d of definition levels", len(b), h.levels)
		}
		define, b = b[:h.levels], b[h.levels:]
		if h.packed {
			b, err = unpack(g.codec, b, h.size-h.levels)
		}
		return define, b, err
	}
	if b, err = unpack(g.codec, b, h.size); err != nil || !g.optional {
		return nil, b, err
	}
	if h.definition != runLength {
		return nil, nil, fmt.Errorf("its levels are in encoding %d: expected run-length (%d)", h.definition, runLength)
	}
	return prefixed(b)
}

// page yields the rows of a data page.
func (g *group) page(h pageHeader, b []byte) error {
	define, b, err := g.levels(h, b)
	if err != nil {
		return err
	}
	present := h.values
	if g.optional {
		if present, err = countPresent(define, h.values); err != nil {
			return err
		}
	}
	next, err := decode(h.encoding, b, present, g.dictionary)
	if err != nil {
		return err
	}
	defined := newLevels(define)
	for range h.values {
		var text []byte
		if !g.optional || defined.next() == 1 {
			if text, err = next(); err == nil && text == nil {
				text = []byte{}
			}
		}
		if err == nil {
			err = g.each(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unpack decompresses b, whose uncompressed size is size.
func unpack(codec int64, b []byte, size int64) (all []byte, err error) {
	if size < 0 || size > freeLength+mostRatio*int64(len(b)) {
		return nil, fmt.Errorf("a page of %d bytes says that it has %d unpacked", len(b), size)
	}
	if size == 0 && len(b) == 0 {
		return nil, nil
	}
	switch codec {
	case uncompressed:
		all = b
	case snappyCodec:
		var n int
		if n, err = snappy.DecodedLen(b); err == nil && int64(n) == size {
			all, err = snappy.Decode(nil, b)
		}
	case gzipCodec:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			all, err = readMost(r, size)
		}
	case zstdCodec:
		var r *zstd.Decoder
		r, err = zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(mostPage), zstd.WithDecoderMaxWindow(128<<20))
		if err == nil {
			all, err = readMost(r, size)
			r.Close()
		}
	case lz4Raw:
		all = make([]byte, size)
		n, wrong := lz4.UncompressBlock(b, all)
		all, err = all[:max(n, 0)], wrong
	default:
		name := codecNames[codec]
		if name == "" {
			name = fmt.Sprint("codec ", codec)
		}
		return nil, fmt.Errorf("it is compressed with %s, which is not read: write it with zstd or snappy", name)
	}
	if err != nil {
		return nil, fmt.Errorf("a page cannot be unpacked: %w", err)
	}
	if int64(len(all)) != size {
		return nil, errors.New("a page cannot be unpacked: it has another length than it says")
	}
	return all, nil
}

// readMost returns the content of r, up to one byte more than size.
func readMost(r io.Reader, size int64) ([]byte, error) {
	var b bytes.Buffer
	_, err := io.Copy(&b, io.LimitReader(r, size+1))
	return b.Bytes(), err
}
