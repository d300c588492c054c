package safetensors

// The JSON header. Duplicate keys, unknown fields and numbers other than plain non-negative
// integers are refused.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// mostHeader returns the maximum length of the header of a file of this size. It is the format's
// own limit, and less for small files, since parsing a header takes many times its length in
// memory. A header has about 100 bytes per tensor.
func mostHeader(size int64) int64 { return min(100_000_000, max(1<<20, size/8)) }

// The format has no such limits. They are far above any real tensor's, and bound the cost of a few
// bytes of a header.
const (
	maxDims = 32
	maxName = 1024 // bytes
)

// metadataKey is the only header key that is not a tensor: a map of strings to strings.
const metadataKey = "__metadata__"

// parseHeader returns the tensors by ascending offset, with offsets relative to the start of the
// data. dataSize is the number of bytes after the header, which the tensors must tile.
func parseHeader(header []byte, dataSize int64) ([]Info, error) {
	switch {
	case len(header) == 0 || header[0] != '{':
		return nil, errors.New("offset 8: the header must start with '{'")
	case !utf8.Valid(header):
		return nil, errors.New("offset 8: the header is not UTF-8")
	case !json.Valid(header):
		return nil, errors.New("offset 8: the header is not one JSON object")
	}
	var tensors []Info
	err := object(header, func(key string, value []byte) error {
		if key == metadataKey {
			return checkMetadata(value)
		}
		t, err := parseTensor(key, value)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	if err := checkTiling(tensors, dataSize); err != nil {
		return nil, err
	}
	return tensors, nil
}

// checkTiling returns an error unless the tensors follow each other from 0 to dataSize: no hole, no
// overlap, nothing out of bounds.
func checkTiling(tensors []Info, dataSize int64) error {
	var end int64
	for _, t := range tensors {
		switch {
		case t.Offset < end:
			return fmt.Errorf("tensor %q: starts at data offset %d inside the tensor that ends at %d (tensors must not overlap)",
				t.Name, t.Offset, end)
		case t.Offset > end:
			return fmt.Errorf("tensor %q: starts at data offset %d, the tensor before ends at %d (no holes allowed)",
				t.Name, t.Offset, end)
		case t.Size > dataSize-t.Offset:
			return fmt.Errorf("tensor %q: ends at data offset %d, the file holds %d bytes of data (truncated?)",
				t.Name, t.Offset+t.Size, dataSize)
		}
		end = t.Offset + t.Size
	}
	if end != dataSize {
		return fmt.Errorf("the tensors end at data offset %d, the file holds %d bytes of data (must end together)", end, dataSize)
	}
	return nil
}

// object calls value for each key of a JSON object. Its keys must differ.
func object(text []byte, value func(key string, value []byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, _ := dec.Token(); t != json.Delim('{') {
		return fmt.Errorf("found %.100s where \"{\" must be", text)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key := t.(string) // the header is valid JSON
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("duplicate key %.100q", key)
		}
		seen[key] = true
		if err := value(key, raw); err != nil {
			return err
		}
	}
	return nil
}

// parse parses a value of type T that is not null.
func parse[T any](text []byte, what string) (v T, err error) {
	err = json.Unmarshal(text, &v)
	if err != nil || bytes.Equal(text, []byte("null")) {
		err = fmt.Errorf("found %.100s where %s must be", text, what)
	}
	return v, err
}

// checkMetadata checks the metadata; null is none, as in the reference implementation.
func checkMetadata(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	err := object(text, func(_ string, value []byte) error {
		_, err := parse[string](value, "a string")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", metadataKey, err)
	}
	return nil
}

// integers parses an array of at most most integers from 0 to 2^63-1.
func integers(text []byte, most int) (list []int, err error) {
	numbers, err := parse[[]*int](text, "an array of integers from 0 to 2^63-1")
	if err == nil && len(numbers) > most {
		err = fmt.Errorf("an array has more than %d integers", most)
	}
	list = []int{}
	for _, n := range numbers {
		if err == nil && (n == nil || *n < 0) {
			err = fmt.Errorf("found %.100s where an integer from 0 to 2^63-1 must be", text)
		}
		if err == nil {
			list = append(list, *n)
		}
	}
	return list, err
}

func checkName(name string) error {
	if len(name) > maxName || name == metadataKey || !utf8.ValidString(name) {
		return fmt.Errorf("tensor %.100q: a name must be UTF-8, at most %d bytes long and not %q", name, maxName, metadataKey)
	}
	return nil
}

// parseTensor parses one tensor's entry and checks that its span matches dtype and shape.
func parseTensor(name string, text []byte) (info Info, err error) {
	if err := checkName(name); err != nil {
		return info, err
	}
	info.Name = name
	var offsets []int
	err = object(text, func(key string, value []byte) (err error) {
		switch key {
		case "dtype":
			info.DType, err = parse[string](value, "a string")
		case "shape":
			info.Shape, err = integers(value, maxDims)
		case "data_offsets":
			offsets, err = integers(value, 2)
		default:
			err = fmt.Errorf("unknown field %.100q: expected dtype, shape and data_offsets", key)
		}
		return err
	})
	if err == nil && (info.DType == "" || info.Shape == nil || len(offsets) != 2 || offsets[0] > offsets[1]) {
		err = errors.New("needs dtype, shape and data_offsets [begin, end] with begin <= end")
	}
	want := int64(0)
	if err == nil {
		info.Offset, info.Size = int64(offsets[0]), int64(offsets[1]-offsets[0])
		want, err = ByteSize(info.DType, info.Shape)
	}
	if err == nil && want != info.Size {
		err = fmt.Errorf("data_offsets %v span %d bytes, %s %v takes %d", offsets, info.Size, info.DType, info.Shape, want)
	}
	if err != nil {
		return info, fmt.Errorf("tensor %q: %w", name, err)
	}
	return info, nil
}
