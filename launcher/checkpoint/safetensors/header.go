package safetensors

// The JSON header. It is parsed token by token, so that duplicate keys, unknown fields and numbers
// other than plain non-negative integers are refused.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	p := parser{json.NewDecoder(bytes.NewReader(header))}
	p.dec.UseNumber()
	var tensors []Info
	err := p.object(func(key string) error {
		if key == metadataKey {
			return p.metadata()
		}
		t, err := p.tensor(key)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("offset %d: %w", 8+p.dec.InputOffset(), err)
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

// parser walks a header that is known to be valid JSON. It checks types, keys and ranges.
type parser struct{ dec *json.Decoder }

// errNull says that a null stands in place of an object.
var errNull = errors.New(`found null where "{" must be`)

func (p parser) delim(want json.Delim) error {
	t, err := p.dec.Token()
	if err != nil {
		return err
	}
	if t == nil && want == '{' {
		return errNull
	}
	if t != want {
		return fmt.Errorf("found %.100v where %q must be", shown(t), want.String())
	}
	return nil
}

// shown returns a token as JSON has it.
func shown(t json.Token) any {
	if t == nil {
		return "null"
	}
	return t
}

func (p parser) str() (string, error) {
	t, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("found %.100v where a string must be", shown(t))
	}
	return s, nil
}

// object reads one object and calls value for each key, which must read the value.
func (p parser) object(value func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		key, err := p.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("duplicate key %.100q", key)
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// metadata checks the metadata; null is none, as in the reference implementation.
func (p parser) metadata() error {
	err := p.object(func(string) error {
		_, err := p.str()
		return err
	})
	if err == nil || err == errNull {
		return nil
	}
	return fmt.Errorf("%s: %w", metadataKey, err)
}

// integers reads an array of at most most integers in [0, 2^bits).
func integers[T int | int64](p parser, bits, most int) ([]T, error) {
	if err := p.delim('['); err != nil {
		return nil, err
	}
	list := []T{}
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		number, _ := t.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, bits)
		if err != nil {
			return nil, fmt.Errorf("found %.100v where an integer from 0 to 2^%d-1 must be", shown(t), bits)
		}
		if len(list) == most {
			return nil, fmt.Errorf("an array has more than %d integers", most)
		}
		list = append(list, T(n))
	}
	return list, p.delim(']')
}

func checkName(name string) error {
	if len(name) > maxName || name == metadataKey || !utf8.ValidString(name) {
		return fmt.Errorf("tensor %.100q: a name must be UTF-8, at most %d bytes long and not %q", name, maxName, metadataKey)
	}
	return nil
}

// tensor reads one tensor's entry and checks that its span matches dtype and shape.
func (p parser) tensor(name string) (Info, error) {
	info := Info{Name: name}
	if err := checkName(name); err != nil {
		return info, err
	}
	var offsets []int64
	err := p.object(func(key string) (err error) {
		switch key {
		case "dtype":
			info.DType, err = p.str()
		case "shape":
			info.Shape, err = integers[int](p, strconv.IntSize-1, maxDims)
		case "data_offsets":
			offsets, err = integers[int64](p, 63, 2)
		default:
			err = fmt.Errorf("unknown field %.100q: expected dtype, shape and data_offsets", key)
		}
		return err
	})
	if err != nil {
		return info, fmt.Errorf("tensor %q: %w", name, err)
	}
	if info.DType == "" || info.Shape == nil || len(offsets) != 2 || offsets[0] > offsets[1] {
		return info, fmt.Errorf("tensor %q: needs dtype, shape and data_offsets [begin, end] with begin <= end", name)
	}
	info.Offset, info.Size = offsets[0], offsets[1]-offsets[0]
	want, err := ByteSize(info.DType, info.Shape)
	if err != nil {
		return info, fmt.Errorf("tensor %q: %w", name, err)
	}
	if want != info.Size {
		return info, fmt.Errorf("tensor %q: data_offsets %v span %d bytes, %s %v takes %d",
			name, offsets, info.Size, info.DType, info.Shape, want)
	}
	return info, nil
}
