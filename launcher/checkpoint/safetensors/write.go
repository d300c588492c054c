package safetensors

// Writing: deterministic bytes, the same as the reference library's, and no partial file under the
// final name.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"spmoe/launcher/system"
)

// Tensor is a tensor to write.
type Tensor struct {
	Name  string
	DType string // one of the constants of this package
	Shape []int  // empty for a scalar
	Data  []byte // row-major, little-endian, exactly as long as DType and Shape require

	// Stream, if not nil, writes the bytes instead of Data, in the same number. Tensors need not
	// all be in memory.
	Stream func(w io.Writer) error
}

// placed is a tensor at its place in a file.
type placed struct {
	Tensor
	size int64 // bytes
	rank int   // of its type
}

// write writes the tensor's bytes.
func (t placed) write(w io.Writer) error {
	if t.Stream == nil {
		_, err := w.Write(t.Data)
		return err
	}
	c := counter{w: w}
	if err := t.Stream(&c); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return t.checkSize(c.n)
}

// checkSize returns an error unless n bytes are those of the tensor.
func (t placed) checkSize(n int64) error {
	if n != t.size {
		return fmt.Errorf("tensor %q: %d bytes of data, %s %v takes %d", t.Name, n, t.DType, t.Shape, t.size)
	}
	return nil
}

// counter counts the bytes that it passes on.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Write writes a file durably: under a temporary name next to path, synced, then renamed to path.
// On an error path is unchanged and nothing is left behind. Order and bytes depend only on the
// content of the arguments.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	l, err := NewLayout(tensors, metadata)
	if err == nil {
		err = system.WriteTo(path, l.Write)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return system.SyncFolder(os.Open(filepath.Dir(path)))
}

// Layout is a file to write: tensors by descending dtype rank, then by name; metadata keys sorted,
// a nil map left out.
type Layout struct {
	header  []byte // with its length
	tensors []placed
}

// NewLayout returns an error if a tensor is invalid: a duplicate name, or data of the wrong length.
func NewLayout(tensors []Tensor, metadata map[string]string) (*Layout, error) {
	ordered, err := order(tensors)
	if err != nil {
		return nil, err
	}
	header, err := encodeHeader(ordered, metadata)
	return &Layout{header, ordered}, err
}

// Write writes the file.
func (l *Layout) Write(w io.Writer) error {
	if _, err := w.Write(l.header); err != nil {
		return err
	}
	for _, t := range l.tensors {
		if err := t.write(w); err != nil {
			return err
		}
	}
	return nil
}

// order checks the tensors and returns them in the order of a file.
func order(tensors []Tensor) ([]placed, error) {
	var all []placed
	names := map[string]bool{}
	for _, t := range tensors {
		if err := checkName(t.Name); err != nil {
			return nil, err
		}
		dtype, err := lookupDType(t.DType)
		p := placed{Tensor: t, rank: dtype.rank}
		if err == nil {
			p.size, err = ByteSize(t.DType, t.Shape)
		}
		switch {
		case err != nil:
		case names[t.Name]:
			err = errors.New("a name must be unique")
		case len(t.Shape) > maxDims:
			err = fmt.Errorf("%d dimensions are more than %d", len(t.Shape), maxDims)
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.Stream == nil {
			if err := p.checkSize(int64(len(t.Data))); err != nil {
				return nil, err
			}
		}
		names[t.Name] = true
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// encodeHeader returns the length prefix and the JSON, padded with spaces so that the data starts
// at a multiple of 8 bytes.
func encodeHeader(tensors []placed, metadata map[string]string) ([]byte, error) {
	header := append(make([]byte, 8), '{')
	if metadata != nil {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("metadata %q: keys and values must be UTF-8", k)
			}
		}
		header = appendField(header, metadataKey, metadata)
	}
	var offset int64
	for _, t := range tensors {
		header = appendField(header, t.Name, struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int64{offset, offset + t.size}})
		offset += t.size
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	length := int64(len(header)) - 8
	if most := mostHeader(8 + length + offset); length > most {
		return nil, fmt.Errorf("the header takes %d bytes, the limit for %d bytes of data is %d: use fewer tensors per file", length, offset, most)
	}
	binary.LittleEndian.PutUint64(header, uint64(length))
	return header, nil
}

// appendField appends `"key":value`, after a comma unless it is the first field.
func appendField(object []byte, key string, value any) []byte {
	if object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	object = append(appendJSON(object, key), ':')
	return appendJSON(object, value)
}

// appendJSON appends a value without the HTML escapes and the line end of encoding/json.
func appendJSON(text []byte, value any) []byte {
	b := bytes.NewBuffer(text)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
