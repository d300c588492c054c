package datasets

// CSV and TSV: records of fields, as in RFC 4180. Line ends in quotes are kept as they are.

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// records calls each with the column of that name of every record after the first, which names the
// columns.
func records(in *bufio.Reader, comma byte, column string, each func(text []byte) error) error {
	if start, _ := in.Peek(len(byteOrderMark)); bytes.Equal(start, byteOrderMark) {
		in.Discard(len(byteOrderMark)) // which is buffered
	}
	r := recordReader{in: in, comma: comma}
	if err := r.next(); err != nil {
		return err
	}
	at := slices.IndexFunc(r.fields, func(f []byte) bool { return string(f) == column })
	if at < 0 {
		var names []string
		for _, f := range r.fields {
			names = append(names, string(f))
		}
		for _, other := range ";\t|" {
			if len(names) == 1 && strings.ContainsRune(names[0], other) {
				return fmt.Errorf("there is no column %q: the first line is %.50q: separate fields with %q, not %q (tabs in .tsv)", column, names[0], comma, other)
			}
		}
		return fmt.Errorf("there is no column %q: %s", column, hasFields(names))
	}
	columns := len(r.fields)
	for number := 1; ; number++ {
		err := r.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("record %d: %w", number, err)
		case len(r.fields) == 1 && len(r.fields[0]) == 0 && columns > 1:
			continue // an empty line
		case len(r.fields) != columns:
			return fmt.Errorf("record %d has %d fields, the first line %d: expected a quoted field where it has a separator, a quote or a line end", number, len(r.fields), columns)
		}
		if err := each(r.fields[at]); err != nil {
			return err
		}
	}
}

// recordReader reads one record at a time.
type recordReader struct {
	in     *bufio.Reader
	comma  byte
	fields [][]byte // of the last record
	text   []byte   // that they are in
	ends   []int
}

// next reads the next record; io.EOF: there is none.
func (r *recordReader) next() error {
	r.text, r.ends, r.fields = r.text[:0], r.ends[:0], r.fields[:0]
	quoted, started := false, false // in quotes, and beyond the beginning of a field
	nuls := 0
	for first := true; ; first = false {
		b, err := r.in.ReadByte()
		if err == nil && b == 0 {
			nuls++
		}
		switch {
		case err == io.EOF && first:
			return io.EOF
		case err == io.EOF && quoted:
			return fmt.Errorf("it ends within quotes: %w", io.ErrUnexpectedEOF)
		case err != nil && err != io.EOF:
			return err
		case len(r.text) > mostLine || len(r.ends) > mostFields:
			return fmt.Errorf("it has more than %d bytes or %d fields", mostLine, mostFields)
		case b == 0 && nuls > mostNULs:
			return fmt.Errorf("it has more than %d NUL bytes", mostNULs)
		case quoted && b == '"':
			if quoted = r.follows('"'); quoted {
				r.text = append(r.text, '"')
			}
		case quoted:
			r.text = append(r.text, b)
		case err == io.EOF || b == '\n' || b == '\r':
			if b == '\r' {
				r.follows('\n')
			}
			r.end()
			from := 0
			for _, to := range r.ends {
				r.fields = append(r.fields, r.text[from:to])
				from = to
			}
			return nil
		case b == r.comma:
			r.end()
			started = false
		case b == '"' && !started:
			quoted, started = true, true
		default:
			r.text, started = append(r.text, b), true
		}
	}
}

// Limits of a record. A hole in a file is zeros.
const (
	mostFields = 1 << 16
	mostNULs   = 1 << 16
)

// follows reads the next byte if it is b.
func (r *recordReader) follows(b byte) bool {
	next, err := r.in.ReadByte()
	if err != nil {
		return false // the next read says so
	}
	if next == b {
		return true
	}
	r.in.UnreadByte() // after a read it can be
	return false
}

// end ends a field. The fields are in place when the record is complete, because text may move.
func (r *recordReader) end() { r.ends = append(r.ends, len(r.text)) }
