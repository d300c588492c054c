package arrowipc

// A column of strings or of lists of strings, read record batch by record batch.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Text is a column of strings, or of lists of them.
type Text struct {
	messages interface {
		io.Reader
		next() (message, error)
	}
	schema     *buffer
	column     column
	dictionary *dictionary // of the strings; nil: they are not encoded
}

// IsFile reports whether the first bytes of an Arrow file or stream are those of a file.
func IsFile(start []byte) bool { return bytes.HasPrefix(start, []byte(Magic)) }

// NewText reads the schema of a stream and finds the column with the name field. Its type must be a
// string or binary type, a list of such, or either with a dictionary. r is read from its beginning,
// and not beyond the end of the stream.
func NewText(r io.Reader, field string) (*Text, error) {
	s := &stream{r: r}
	m, err := s.next()
	if err == io.EOF && !s.begun {
		return nil, errors.New("it is empty: expected an Arrow stream or file")
	} else if err == io.EOF || err == nil && m.kind != headerSchema {
		return nil, errors.New("it does not begin with a schema")
	} else if err != nil {
		return nil, err
	}
	t := &Text{messages: s}
	return t, t.choose(m.header, m.version, field)
}

// NewTextFile is NewText for a file of size bytes, whose schema is in its footer.
func NewTextFile(r io.ReaderAt, size int64, field string) (*Text, error) {
	footer, messages, err := openBlocks(r, size)
	if err != nil {
		return nil, err
	}
	t := &Text{messages: messages}
	return t, t.choose(footer.table(1), footer.i16(0), field)
}

// choose finds the column with a name in a schema.
func (t *Text) choose(schema table, version int16, field string) error {
	all, err := columns(schema, version)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(c column) bool { return c.name == field })
	if i < 0 {
		var names []string
		for _, c := range all[:min(len(all), 20)] {
			names = append(names, fmt.Sprintf("%.50q", c.name))
		}
		return fmt.Errorf("it has no column %q, but %s", field, strings.Join(names, ", "))
	}
	t.schema, t.column = schema.f, all[i]
	of := t.column.field
	if children := of.tables(5); isList(of) && len(children) == 1 {
		of = children[0]
	}
	if !isString(of) || isList(t.column.field) && t.column.dictionary {
		kind := typeName(t.column.kind)
		if isList(t.column.field) {
			kind += " of " + typeName(of.u8(2))
		}
		if isList(t.column.field) && of.u8(2) == typeStruct {
			kind += ", and lists of messages are not read"
		}
		return fmt.Errorf("column %q is of type %s: expected a string or a list of strings", field, kind)
	}
	if of.has(4) {
		t.dictionary = &dictionary{id: of.table(4).i64(0)}
	}
	return t.schema.fault()
}

// Rows calls each with the strings of all rows in order, nil for null, until it returns an error.
// The strings of a list are joined with line ends. A string is valid during the call. Errors name
// the record batch.
func (t *Text) Rows(each func([]byte) error) error {
	for batch := 1; ; {
		m, err := t.messages.next()
		if err == io.EOF {
			return nil
		}
		kind := m.kind
		switch {
		case err != nil:
		case kind == headerDictionary:
			err = t.addDictionary(m)
		case kind == headerRecordBatch:
			err = t.batch(m, each)
		default:
			err = fmt.Errorf("a message of kind %d is none", kind)
		}
		if err != nil && kind == headerDictionary {
			return fmt.Errorf("a dictionary before record batch %d: %w", batch, err)
		} else if err != nil {
			return fmt.Errorf("record batch %d: %w", batch, err)
		}
		if kind == headerRecordBatch {
			batch++
		}
	}
}

// batch yields the rows of a record batch.
func (t *Text) batch(m message, each func([]byte) error) error {
	n, err := m.rows(t.column.node)
	if err != nil {
		return err
	}
	b, err := newBody(m, t.messages)
	if err != nil {
		return err
	}
	b.node, b.view = t.column.node, t.column.views
	b.buffer = t.column.buffer + views(m, t.column.views)
	strings, err := b.array(t.column.field, t.dictionary)
	if err == nil {
		err = m.header.f.err
	}
	if err != nil {
		return err
	}
	for i := range n {
		text, err := strings.at(i)
		if err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
		if err := each(text); err != nil {
			return err
		}
	}
	return nil
}
