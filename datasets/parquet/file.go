// Package parquet reads one column of strings from Parquet files, page by page. It trusts no byte:
// lengths and counts are checked against the available data, and memory is allocated as bytes
// arrive.
//
// It reads what writers of text data sets write: a column of strings or of lists of strings, at the
// top or a field of structures, required or optional, in plain, dictionary and delta encodings,
// with data pages of both versions, uncompressed or with Snappy, gzip, LZ4 or zstd. Row groups may
// be empty.
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
	mostRow     = 256 << 20 // bytes of a list
	byteArray   = 6         // the physical type
	listType    = 3         // both the converted and the logical type
)

// The repetition types of columns.
const (
	required = 0
	optional = 1
	repeated = 2
)

// Column is a column of strings of a file, or of lists of them.
type Column struct {
	r io.ReaderAt
	// The levels of a string that is there, in the sense of Dremel: how many of the fields above it
	// are optional or repeated, and how many are repeated.
	definition, repetition uint32
	chunks                 []chunk
}

// chunk is the column's part of a row group.
type chunk struct {
	rows   int64
	codec  int64
	values int64
	offset int64 // of the first page
	size   int64 // of all pages, including headers, in the file
}

// Open reads the footer of a file of size bytes and finds the column with the name field. The field
// of a structure has the name STRUCTURE.FIELD.
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
	leaf, list                 bool
	name                       string
}

// schema reads the elements, a tree in depth-first order, and returns the index of the column with
// the name field among the leaves.
func (c *Column) schema(d *decoder, field string) (index int, err error) {
	index = -1
	var names []string
	var above, found []element              // the root, the structures and the column; and it and what is below
	inside := 0                             // the level of the column; 0: elsewhere
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
		}
		if found == nil {
			if level > 1 {
				e.name = above[level-1].name + "." + e.name
			}
			above = append(above[:level], e)
		}
		if level <= inside {
			inside = 0
		} else if found == nil && level > 0 && e.name == field {
			inside, index = level, leaves
		}
		if inside > 0 {
			found = append(found, e)
		}
		if e.leaf {
			leaves++
		} else {
			open = append(open, e.children)
		}
	})
	switch {
	case d.err != nil:
		return -1, errThrift
	case found == nil:
		return -1, fmt.Errorf("it has no column %q, but %s", field, strings.Join(names[:min(len(names), 20)], ", "))
	}
	for _, e := range above[1 : len(above)-1] {
		if e.list || e.repetition != required && e.repetition != optional {
			return -1, fmt.Errorf("column %q is in a list of structures: %s", field, NoMessages)
		}
		c.definition += uint32(e.repetition)
	}
	return index, c.suits(field, found)
}

// NoMessages says what to do with chats.
const NoMessages = "lists of messages are not read: write each row as one text, with the template of the model, to a column of strings"

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
		case id == 6 && kind == thriftI32:
			e.list = e.list || d.integer() == listType
		case id == 10 && kind == thriftStruct:
			d.fields(func(id int, _ uint8) bool {
				e.list = e.list || id == listType
				return false
			})
		default:
			return false
		}
		return true
	})
	return e
}

// suits sets the levels of a column of strings, or of lists of strings in one of the three forms of
// the format's "Lists": a group of a repeated group of an element, a group of a repeated element,
// or a repeated element. path is the column and what is below it. Anything else is an error.
func (c *Column) suits(field string, path []element) error {
	types := [...]string{"boolean", "int32", "int64", "int96", "float", "double", "byte_array", "fixed-length byte array"}
	const expected = "expected a string or a list of strings"
	for i, e := range path {
		chain := e.leaf == (i == len(path)-1) && (e.leaf || e.children == 1)
		// A repeated group of that name is itself the element, a structure.
		structure := i == 1 && !e.leaf && (e.name == "array" || e.name == field[strings.LastIndexByte(field, '.')+1:]+"_tuple")
		switch {
		case i == 0 && !e.leaf && !e.list && e.repetition != repeated && len(path) > 1 && path[1].repetition != repeated:
			return fmt.Errorf("column %q is a structure: name one of its fields, such as %s.%s", field, field, path[1].name)
		case i > 0 && !e.leaf && e.children > 1 && path[0].list:
			return fmt.Errorf("column %q is a list of structures: %s", field, NoMessages)
		}
		if !chain || structure || i == 0 && !e.leaf && (!e.list || e.repetition == repeated) || i == 1 && e.repetition != repeated || i > 2 || i == 2 && e.repetition == repeated {
			return fmt.Errorf("column %q is nested: %s", field, expected)
		}
		if e.repetition < required || e.repetition > repeated {
			return fmt.Errorf("column %q has repetition type %d", field, e.repetition)
		}
		if e.repetition != required {
			c.definition++
		}
		if e.repetition == repeated {
			c.repetition++
		}
	}
	switch e := path[len(path)-1]; {
	case e.kind < 0 || e.kind >= int64(len(types)):
		return fmt.Errorf("column %q is of type %d: %s", field, e.kind, expected)
	case e.kind != byteArray:
		return fmt.Errorf("column %q is of type %s: %s", field, types[e.kind], expected)
	}
	return nil
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
	case err == nil && (k.rows < 0 || k.values < k.rows || k.values > k.rows && (c.repetition == 0 || k.rows == 0)):
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
