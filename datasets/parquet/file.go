// Package parquet reads one column of strings from Parquet files, page by page. It trusts no byte:
// lengths and counts are checked against the available data, and memory is allocated as bytes
// arrive.
//
// It reads what writers of text data sets write: a top-level column of strings, required or
// optional, in plain, dictionary and delta-length encodings, with data pages of both versions,
// uncompressed or with Snappy, gzip, LZ4 or zstd. Row groups may be empty.
//
// Source: apache/parquet-format, version 2.11: README, Encodings, Compression and parquet.thrift.
package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Magic is at the beginning and the end of a file.
const Magic = "PAR1"

const (
	mostFooter  = 16 << 20
	mostPage    = 1 << 30 // bytes per page, before and after decompression
	mostValues  = 1 << 24 // per page
	mostColumns = 1 << 16
	byteArray   = 6 // the physical type
	optional    = 1 // the repetition type of a column that may have nulls; 0: it has none
)

// Column is a column of strings of a file.
type Column struct {
	r        io.ReaderAt
	optional bool // it has definition levels: 1 for a string, 0 for null
	chunks   []chunk
}

// chunk is the column's part of a row group.
type chunk struct {
	rows   int64
	codec  int64
	values int64
	offset int64 // of the first page
	size   int64 // of all pages, including headers, in the file
}

// Open reads the footer of a file of size bytes and finds the column with the name field.
func Open(r io.ReaderAt, size int64, field string) (*Column, error) {
	footer, err := readFooter(r, size)
	if err != nil {
		return nil, err
	}
	c := &Column{r: r}
	d := &decoder{b: footer}
	index, err := -1, error(nil)
	encrypted := false
	d.fields(func(id int, kind uint8) bool {
		switch {
		case id == 2 && kind == thriftList:
			index, err = c.schema(d, field)
			if err != nil {
				d.fail()
			}
		case id == 4 && kind == thriftList && index >= 0:
			d.items(thriftStruct, func(int) {
				chunk, here := c.rowGroup(d, index)
				if err == nil {
					err = here
				}
				c.chunks = append(c.chunks, chunk)
			})
		case id == 8:
			encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	switch {
	case encrypted:
		return nil, errors.New("it is encrypted")
	case err != nil:
		return nil, err
	case d.err != nil:
		return nil, d.err
	case index < 0:
		return nil, errors.New("its metadata has no schema")
	}
	for i, chunk := range c.chunks {
		if chunk.rows == 0 {
			continue // it has no pages, and its offset may be anything
		}
		if chunk.offset < 4 || chunk.size < 0 || chunk.offset > size || chunk.size > size-chunk.offset {
			return nil, fmt.Errorf("row group %d: the column has %d bytes at %d, of a file of %d", i+1, chunk.size, chunk.offset, size)
		}
	}
	return c, nil
}

func readFooter(r io.ReaderAt, size int64) ([]byte, error) {
	if size < 12 {
		return nil, fmt.Errorf("it has %d bytes, too few for a Parquet file", size)
	}
	var end [8]byte
	if _, err := r.ReadAt(end[:], size-8); err != nil {
		return nil, err
	}
	if string(end[4:]) == "PARE" {
		return nil, errors.New("it is encrypted")
	}
	var start [4]byte
	if _, err := r.ReadAt(start[:], 0); err != nil {
		return nil, err
	}
	if string(end[4:]) != Magic || string(start[:]) != Magic {
		return nil, errors.New("it is cut off or no Parquet file: it does not begin and end with PAR1")
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if n > size-12 || n > mostFooter {
		return nil, fmt.Errorf("it says that its footer has %d bytes, of %d in all: expected at most %d", n, size, mostFooter)
	}
	return readSection(r, size-8-n, n)
}

// readSection returns n bytes at an offset. It allocates memory as they arrive.
func readSection(r io.ReaderAt, offset, n int64) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.Copy(&b, io.NewSectionReader(r, offset, n))
	if err == nil && got != n {
		err = errors.New("it is cut off")
	}
	return b.Bytes(), err
}

// element is a node of the schema.
type element struct {
	kind, repetition, children int64
	name                       string
}

// schema reads the elements, a tree in depth-first order, and returns the index of the column with
// the name field among the leaves.
func (c *Column) schema(d *decoder, field string) (index int, err error) {
	var names []string
	var found *element
	leaves, count, open := 0, 0, []int64{1} // remaining children of the element on each level
	d.items(thriftStruct, func(int) {
		e := schemaElement(d)
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if count++; count > mostColumns || len(open) > mostDepth || len(open) == 0 {
			d.fail()
			return
		}
		open[len(open)-1]--
		if level := len(open) - 1; level == 1 { // the root is level 0
			names = append(names, fmt.Sprintf("%.50q", e.name))
			if found == nil && e.name == field {
				found, index = &e, leaves
			}
		}
		if e.children > 0 {
			open = append(open, e.children)
		} else {
			leaves++
		}
	})
	switch {
	case d.err != nil:
		return -1, errThrift
	case found == nil:
		return -1, fmt.Errorf("it has no column %q, but %s", field, strings.Join(names[:min(len(names), 20)], ", "))
	case found.children > 0 || found.kind != byteArray || found.repetition < 0 || found.repetition > optional:
		return -1, fmt.Errorf("column %q is no column of strings: %s", field, OneText)
	}
	c.optional = found.repetition == optional
	return index, nil
}

// LastFormats is the last commit that reads lists of strings, fields of structures, and more
// encodings.
const LastFormats = "ae336b0a"

// OneText says what to do with lists of strings, structures and chats.
const OneText = "lists and structures are not read: write each row as one text to a column of strings, or continue an older run with the launcher of commit " + LastFormats

func schemaElement(d *decoder) (e element) {
	d.fields(func(id int, kind uint8) bool {
		switch {
		case id == 1 && kind == thriftI32:
			e.kind = d.integer()
		case id == 3 && kind == thriftI32:
			e.repetition = d.integer()
		case id == 4 && kind == thriftBinary:
			e.name = string(d.binary())
		case id == 5 && kind == thriftI32:
			e.children = d.integer()
		default:
			return false
		}
		return true
	})
	return e
}

// rowGroup reads one row group's part of leaf column index.
func (c *Column) rowGroup(d *decoder, index int) (k chunk, err error) {
	found := false
	d.fields(func(id int, kind uint8) bool {
		switch {
		case id == 1 && kind == thriftList:
			d.items(thriftStruct, func(i int) {
				if i != index {
					d.skip(thriftStruct)
					return
				}
				found = true
				rows := k.rows
				k, err = columnChunk(d)
				k.rows = rows
			})
		case id == 3 && kind == thriftI64:
			k.rows = d.integer()
		default:
			return false
		}
		return true
	})
	switch {
	case d.err != nil:
		return k, d.err
	case !found:
		return k, errors.New("a row group lacks the column")
	case err == nil && (k.rows < 0 || k.values != k.rows):
		return k, fmt.Errorf("a row group of %d rows has %d values", k.rows, k.values)
	}
	return k, err
}

func columnChunk(d *decoder) (c chunk, err error) {
	var dataPage, dictionaryPage int64
	d.fields(func(id int, kind uint8) bool {
		switch {
		case id == 1:
			err = errors.New("its column lies in another file")
			return false
		case id != 3 || kind != thriftStruct:
			return false
		}
		d.fields(func(id int, kind uint8) bool {
			number := map[int]*int64{
				4:  &c.codec,
				5:  &c.values,
				7:  &c.size,
				9:  &dataPage,
				11: &dictionaryPage,
			}[id]
			if number == nil || kind != thriftI32 && kind != thriftI64 {
				return false
			}
			*number = d.integer()
			return true
		})
		return true
	})
	c.offset = dataPage
	if dictionaryPage > 0 && dictionaryPage < dataPage {
		c.offset = dictionaryPage
	}
	return c, err
}
