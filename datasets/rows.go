package datasets

// The documents of files with one document per row: JSONL, Parquet and Arrow.

import (
	"bufio"
	"bytes"
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

// mostLine is the maximum length of a line of a JSONL file.
const mostLine = 64 << 20

// eachRow calls each with the number and the text of every row, counted from 1, until it returns an
// error. For rows without text, text is nil or empty. A text is valid during the call.
func (f file) eachRow(field string, each func(row int, text []byte) error) error {
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
	row := 0
	next := func(text []byte) error {
		row++
		if err := given.take(len(text)); err != nil {
			return err
		}
		return each(row, text)
	}
	switch f.kind {
	case jsonLines:
		return lines(limited, field, each)
	case arrowData:
		return arrowRows(limited, field, next)
	}
	var from io.ReaderAt = in
	if f.packing != unpacked {
		var whole bytes.Buffer
		if _, err := io.Copy(&whole, limited); err != nil {
			return packed(err)
		}
		from, size = bytes.NewReader(whole.Bytes()), int64(whole.Len())
	}
	column, err := parquet.Open(from, size, field)
	if err != nil {
		return err
	}
	return column.Rows(next)
}

func arrowRows(r io.Reader, field string, next func([]byte) error) error {
	column, err := arrowipc.NewText(bufio.NewReaderSize(r, 1<<16), field)
	if err != nil {
		return err
	}
	for {
		rows, err := column.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for _, text := range rows {
			if err := next(text); err != nil {
				return err
			}
		}
	}
}

// lines calls each with the text of every line that is not blank. The number of a row is that of
// its line.
func lines(r io.Reader, field string, each func(row int, text []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var line []byte
	for row := 1; ; row++ {
		line = line[:0]
		var err error
		for {
			var part []byte
			part, err = in.ReadSlice('\n')
			if bytes.IndexByte(part, 0) >= 0 { // which JSON writes as \u0000
				return fmt.Errorf("line %d has a NUL byte: expected a JSON object a line", row)
			}
			if line = append(line, part...); len(line) > mostLine {
				return fmt.Errorf("line %d has more than %d bytes: expected a JSON object a line", row, mostLine)
			}
			if err != bufio.ErrBufferFull {
				break
			}
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", row, err)
		}
		if row == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if object := bytes.TrimSpace(line); len(object) > 0 {
			text, wrong := textOf(object, field)
			if wrong != nil {
				return fmt.Errorf("line %d: %w", row, wrong)
			}
			if err := each(row, text); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// textOf returns a field of a JSON object; nil if it is null.
func textOf(object []byte, field string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, fmt.Errorf("it is no JSON object (%v): expected one a line", err)
	}
	value, ok := fields[field]
	if !ok {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(fields))[:min(len(fields), 20)] {
			names = append(names, fmt.Sprintf("%.50q", name))
		}
		has := "it has none"
		if len(names) > 0 {
			has = "it has " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("there is no field %q: %s: name the one that holds the text with --data-field", field, has)
	}
	var text *string
	if err := json.Unmarshal(value, &text); err != nil {
		return nil, fmt.Errorf("field %q is %.50q: expected a string", field, value)
	}
	if text == nil {
		return nil, nil
	}
	return []byte(*text), nil
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
