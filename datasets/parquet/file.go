// Package parquet reads one column of strings from Parquet files, page by page. It trusts no byte:
// lengths and counts are checked against the available data, and memory is allocated as bytes
// arrive.
//
// It reads what writers of text data sets write: a top-level column, required or optional, in
// plain, dictionary and delta encodings, with data pages of both versions, uncompressed or with
// Snappy, gzip, zstd or LZ4_RAW.
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
)

// The repetition types of columns.
const (
	required = 0
	optional = 1
)

// Column is a column of strings of a file.
type Column struct {
	r        io.ReaderAt
	optional bool
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
				chunk, here := rowGroup(d, index)
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
	leaf                       bool
	name                       string
}

// schema reads the elements, a tree in depth-first order, and returns the index of the column with
// the name field among the leaves.
func (c *Column) schema(d *decoder, field string) (index int, err error) {
	index = -1
	var names []string
	leaves, count, open := 0, 0, []int64{1} // remaining children of the element on each level
	d.items(thriftStruct, func(int) {
		e := schemaElement(d)
		if count++; count > mostColumns || len(open) > mostDepth {
			d.fail()
			return
		}
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			d.fail()
			return
		}
		open[len(open)-1]--
		level := len(open) - 1 // 0 is the root
		if level == 1 {
			names = append(names, fmt.Sprintf("%.50q", e.name))
			if e.name == field && index < 0 {
				index = leaves
				err = e.suits(field)
				c.optional = e.repetition == optional
			}
		}
		if e.leaf {
			leaves++
		} else {
			open = append(open, e.children)
		}
	})
	if d.err != nil {
		return -1, errThrift
	}
	if err == nil && index < 0 {
		err = fmt.Errorf("it has no column %q, but %s", field, strings.Join(names[:min(len(names), 20)], ", "))
	}
	return index, err
}

func schemaElement(d *decoder) element {
	e := element{leaf: true}
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
			e.leaf = e.children <= 0
		default:
			return false
		}
		return true
	})
	return e
}

// suits returns an error if an element cannot be read as a column of strings.
func (e element) suits(field string) error {
	types := [...]string{"boolean", "int32", "int64", "int96", "float", "double", "byte_array", "fixed-length byte array"}
	switch {
	case !e.leaf:
		return fmt.Errorf("column %q is nested: expected a string", field)
	case e.repetition != required && e.repetition != optional:
		return fmt.Errorf("column %q is a list: expected a string", field)
	case e.kind < 0 || e.kind >= int64(len(types)):
		return fmt.Errorf("column %q is of type %d: expected a string", field, e.kind)
	case e.kind != byteArray:
		return fmt.Errorf("column %q is of type %s: expected a string", field, types[e.kind])
	}
	return nil
}

// rowGroup reads one row group's part of leaf column index.
func rowGroup(d *decoder, index int) (c chunk, err error) {
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
				rows := c.rows
				c, err = columnChunk(d)
				c.rows = rows
			})
		case id == 3 && kind == thriftI64:
			c.rows = d.integer()
		default:
			return false
		}
		return true
	})
	switch {
	case d.err != nil:
		return c, d.err
	case !found:
		return c, errors.New("a row group lacks the column")
	case err == nil && (c.rows < 0 || c.values != c.rows):
		return c, fmt.Errorf("a row group of %d rows has %d values", c.rows, c.values)
	}
	return c, err
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
			number := map[int]*int64{4: &c.codec, 5: &c.values, 7: &c.size, 9: &dataPage, 11: &dictionaryPage}[id]
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
