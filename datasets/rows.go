package datasets

// The documents of files with one document per row: JSON Lines and Parquet.

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

	"spmoe/datasets/parquet"
)

// mostLine is the maximum length of a line of a JSONL file.
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
	switch {
	case f.kind == jsonLines:
		return lines(buffered, field, each)
	case f.kind == jsonValues:
		return fmt.Errorf("it does not have a JSON object a line: write it so (jq -c '.[]' for an array, jq -c . for objects), or continue an older run with the launcher of commit %s", lastFormats)
	case f.kind == separatedValues:
		return errors.New("CSV is not read: write its rows as JSON Lines or Parquet (pandas: read_csv(FILE).to_parquet(NEW)), with which an older run goes on")
	case f.kind == arrowData:
		return errors.New("it is a packed Arrow file: unpack it")
	}
	var from io.ReaderAt = in
	if f.packing != unpacked {
		var whole bytes.Buffer
		if _, err := io.Copy(&whole, buffered); err != nil {
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
			text, replaced, wrong := textOf(object, field)
			if wrong != nil {
				return fmt.Errorf("line %d: %w", number, wrong)
			}
			if err := each(row{number, text, replaced}); err != nil {
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

// textOf returns a field of a JSON object: a string. The text is nil if it is null, or the object
// is. OUTER.FIELD is the field of an object in a field. replaced is as in row.
func textOf(object []byte, field string) (text []byte, replaced bool, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, false, fmt.Errorf("it is no JSON object (%v): expected one a line", err)
	}
	value, ok := fields[field]
	if fields == nil {
		return nil, false, nil
	}
	outer, inner, _ := strings.Cut(field, ".")
	if of := fields[outer]; !ok && of != nil && (of[0] == '{' || of[0] == 'n') {
		return textOf(of, inner)
	} else if !ok {
		return nil, false, fmt.Errorf("there is no field %q: %s", field, hasFields(slices.Sorted(maps.Keys(fields))))
	}
	var decoded *string
	if err := json.Unmarshal(value, &decoded); err != nil {
		return nil, false, fmt.Errorf("field %q is %.50q, no string: %s", field, value, parquet.OneText)
	} else if decoded == nil {
		return nil, false, nil
	}
	n := strings.Count(*decoded, "\ufffd")
	return []byte(*decoded), n > 0 && n > replacements(value), nil
}

// replacements counts the U+FFFD that a JSON string itself has, also as an escape.
func replacements(value []byte) int {
	escapes := bytes.ToLower(bytes.ReplaceAll(value, []byte(`\\`), nil)) // without escaped backslashes
	return bytes.Count(value, []byte("\ufffd")) + bytes.Count(escapes, []byte(`\ufffd`))
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
