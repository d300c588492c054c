package datasets

// The documents of files with one document per row: JSON, CSV, Parquet and Arrow.

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"spmoe/datasets/arrowipc"
	"spmoe/datasets/parquet"
)

// mostLine is the maximum length of a line of a JSONL file, of a value of a JSON array and of a
// record of CSV.
const mostLine = 64 << 20

// row is a row of a file. For rows without text, text is nil or empty. It is valid during a call.
type row struct {
	number   int // from 1
	text     []byte
	replaced bool // U+FFFD stands for characters that are not valid
}

// eachRow calls each with every row until it returns an error.
func (f file) eachRow(field string, each func(row) error) error {
	in, err := openFile(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	stream, done, err := f.packing.reader(in)
	if err == io.EOF {
		return nil // it is empty
	} else if err != nil {
		return err
	}
	defer done()
	limited := newGuard(stream, size)
	given := guard{left: limited.left} // of text: a dictionary expands to much more than its size
	n := 0
	next := func(text []byte) error {
		n++
		if err := given.take(len(text)); err != nil {
			return err
		}
		return each(row{number: n, text: text})
	}
	buffered := bufio.NewReaderSize(limited, 1<<16)
	switch f.kind {
	case jsonLines:
		return lines(buffered, field, each)
	case jsonValues:
		return values(buffered, field, each)
	case commaSeparated, tabSeparated:
		return records(buffered, f.kind.comma(), field, next)
	case arrowData:
		// An error of a short file shows when it is read.
		if start, _ := buffered.Peek(len(arrowipc.Magic)); !arrowipc.IsFile(start) {
			column, err := arrowipc.NewText(buffered, field)
			if err != nil {
				return err
			}
			return column.Rows(next)
		}
	}
	var from io.ReaderAt = in
	if f.packing != unpacked {
		var whole bytes.Buffer
		if _, err := io.Copy(&whole, buffered); err != nil {
			return packed(err)
		}
		from, size = bytes.NewReader(whole.Bytes()), int64(whole.Len())
	}
	var column interface {
		Rows(func([]byte) error) error
	}
	if f.kind == arrowData {
		column, err = arrowipc.NewTextFile(from, size, field)
	} else {
		column, err = parquet.Open(from, size, field)
	}
	if err != nil {
		return err
	}
	return column.Rows(next)
}

// lines calls each with every line that is not blank. The number of a row is that of its line.
func lines(in *bufio.Reader, field string, each func(row) error) error {
	var line []byte
	for number := 1; ; number++ {
		line = line[:0]
		var err error
		for {
			var part []byte
			part, err = in.ReadSlice('\n')
			if bytes.IndexByte(part, 0) >= 0 { // which JSON writes as \u0000
				return fmt.Errorf("line %d has a NUL byte: expected a JSON object a line", number)
			}
			if line = append(line, part...); len(line) > mostLine {
				return fmt.Errorf("line %d has more than %d bytes: expected a JSON object a line", number, mostLine)
			}
			if err != bufio.ErrBufferFull {
				break
			}
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if object := bytes.TrimSpace(line); len(object) > 0 {
			r, wrong := textOf(object, field)
			if wrong != nil {
				return fmt.Errorf("line %d: %w", number, wrong)
			}
			r.number = number
			if err := each(r); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// byteOrderMark is at the beginning of some UTF-8 files.
var byteOrderMark = []byte("\xef\xbb\xbf")

// values calls each with the items of an array, or with the objects of a file that has one after
// the other. Items are objects, or the texts themselves.
func values(in *bufio.Reader, field string, each func(row) error) error {
	if start, _ := in.Peek(len(byteOrderMark)); bytes.Equal(start, byteOrderMark) {
		in.Discard(len(byteOrderMark)) // which is buffered
	}
	bounded := &valueReader{in, mostLine}
	d := json.NewDecoder(bounded)
	array, err := beginsArray(in)
	if err == nil && array {
		_, err = d.Token()
	}
	for number := 1; err == nil && (!array || d.More()); number++ {
		var value json.RawMessage
		if err = d.Decode(&value); err != nil {
			break
		}
		bounded.left = mostLine
		var r row
		var wrong error
		if value[0] == '"' {
			r, wrong = stringOf(value)
		} else {
			r, wrong = textOf(value, field)
		}
		if wrong != nil {
			return fmt.Errorf("value %d: %w", number, wrong)
		}
		r.number = number
		if err := each(r); err != nil {
			return err
		}
	}
	if err == nil && array {
		_, err = d.Token()
		if _, more := d.Token(); err == nil && more != io.EOF {
			err = errors.New("something follows the array")
		}
	}
	if err == io.EOF && !array {
		return nil
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("it is no JSON (%w): expected an array of objects, or objects", err)
	}
	return nil
}

// beginsArray skips white space and reports whether a bracket follows.
func beginsArray(in *bufio.Reader) (bool, error) {
	for {
		b, err := in.ReadByte()
		if err != nil || !isSpace(b) {
			return b == '[', cmp.Or(err, in.UnreadByte())
		}
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

// valueReader fails when a value is longer than left.
type valueReader struct {
	r    io.Reader
	left int
}

func (v *valueReader) Read(b []byte) (int, error) {
	if v.left <= 0 {
		return 0, fmt.Errorf("a value has more than %d bytes", mostLine)
	}
	n, err := v.r.Read(b[:min(len(b), v.left)])
	v.left -= n
	return n, err
}

// textOf returns a field of a JSON object: a string, or a list of strings, which are joined with
// line ends. The text is nil if it is null, or the object is. OUTER.FIELD is the field of an object
// in a field.
func textOf(object []byte, field string) (r row, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return r, fmt.Errorf("it is no JSON object (%v): expected one a line", err)
	}
	value, ok := fields[field]
	if fields == nil {
		return r, nil
	}
	outer, inner, _ := strings.Cut(field, ".")
	if of := fields[outer]; !ok && of != nil && (of[0] == '{' || of[0] == 'n') {
		return textOf(of, inner)
	} else if !ok {
		return r, fmt.Errorf("there is no field %q: %s", field, hasFields(slices.Sorted(maps.Keys(fields))))
	}
	if value[0] != '[' {
		r, err = stringOf(value)
	} else {
		r, err = listOf(value)
	}
	if err != nil {
		err = fmt.Errorf("field %q is %.50q: expected a string or a list of strings", field, value)
		if begin := bytes.TrimLeft(value[1:], " \t\r\n"); value[0] == '[' && len(begin) > 0 && begin[0] == '{' {
			err = fmt.Errorf("%w: %s", err, parquet.NoMessages)
		}
	}
	return r, err
}

func listOf(value []byte) (r row, err error) {
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil {
		return r, err
	}
	for _, item := range items {
		one, err := stringOf(item)
		if err != nil {
			return r, err
		}
		if one.text == nil {
			continue
		}
		if r.text != nil {
			r.text = append(r.text, '\n')
		}
		r.replaced = r.replaced || one.replaced
		if r.text = append(r.text, one.text...); r.text == nil {
			r.text = []byte{}
		}
	}
	return r, nil
}

func stringOf(value []byte) (r row, err error) {
	var text *string
	if err := json.Unmarshal(value, &text); err != nil || text == nil {
		return r, err
	}
	return row{text: []byte(*text), replaced: strings.Count(*text, "\ufffd") > replacements(value)}, nil
}

// replacements counts the U+FFFD that a JSON string itself has, also as an escape.
func replacements(value []byte) (n int) {
	n = bytes.Count(value, []byte("\ufffd"))
	for i := 0; i+1 < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		if i++; value[i] == 'u' && i+5 <= len(value) && strings.EqualFold(string(value[i+1:i+5]), "fffd") {
			n++
		}
	}
	return n
}

// hasFields names the first fields or columns of a row.
func hasFields(all []string) string {
	has := "it has none"
	var names []string
	for _, name := range all[:min(len(all), 20)] {
		names = append(names, fmt.Sprintf("%.50q", name))
	}
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	return has + ": name the one that holds the text with data_field"
}

// readPacked returns the text of a compressed file, or errBinary.
func (f file) readPacked() ([]byte, error) {
	in, err := openFile(f.path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	r, done, err := f.packing.reader(in)
	if errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer done()
	var text bytes.Buffer
	if _, err := io.Copy(&text, newGuard(r, info.Size())); err != nil {
		return nil, packed(err)
	}
	if bytes.IndexByte(text.Bytes(), separator) >= 0 {
		return nil, errBinary
	}
	return text.Bytes(), nil
}
