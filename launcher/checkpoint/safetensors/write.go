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
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unicode/utf8"
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

// write writes the tensor's bytes.
func (t Tensor) write(w io.Writer) error {
	if t.Stream == nil {
		_, err := w.Write(t.Data)
		return err
	}
	size, err := byteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	c := &counter{w: w, left: size}
	if err := t.Stream(c); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if c.left != 0 {
		return fmt.Errorf("tensor %q: %d bytes of data, %s %v takes %d", t.Name, size-c.left, t.DType, t.Shape, size)
	}
	return nil
}

// counter passes bytes on and refuses more than left.
type counter struct {
	w    io.Writer
	left int64
}

func (c *counter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		return 0, errors.New("more data than its shape takes")
	}
	n, err := c.w.Write(p)
	c.left -= int64(n)
	return n, err
}

// Write writes a file durably: under a temporary name next to path, synced, then renamed to path.
// On an error path is unchanged and nothing is left behind. Order and bytes depend only on the
// content of the arguments.
func Write(path string, tensors []Tensor, metadata map[string]string) (err error) {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x.tmp", filepath.Base(path), rand.Uint64()))
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	err = Encode(file, tensors, metadata)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename inside the folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Encode writes the format to w: tensors by descending dtype rank, then by name; metadata keys
// sorted, a nil map left out. It writes nothing if a tensor is invalid: a duplicate name, or data
// of the wrong length.
func Encode(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	return EncodeAligned(w, tensors, metadata, 8)
}

// EncodeAligned is Encode with spaces after the header, so that the data begins at a multiple of
// alignment bytes. alignment is a multiple of 8. Tensors that are adjacent in one Go slice are
// written at once.
func EncodeAligned(w io.Writer, tensors []Tensor, metadata map[string]string, alignment int) error {
	ordered, err := layout(tensors)
	if err != nil {
		return err
	}
	header, err := encodeHeader(ordered, metadata, alignment)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for len(ordered) > 0 {
		t := ordered[0]
		for ordered = ordered[1:]; len(ordered) > 0 && follows(t, ordered[0]); ordered = ordered[1:] {
			t.Data = t.Data[:len(t.Data)+len(ordered[0].Data)]
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	return nil
}

// follows reports whether b's bytes come right after a's in a's slice.
func follows(a, b Tensor) bool {
	n := len(a.Data)
	return n > 0 && len(b.Data) > 0 && cap(a.Data)-n >= len(b.Data) && &a.Data[:n+1][n] == &b.Data[0]
}

// layout checks the tensors and returns them in file order.
func layout(tensors []Tensor) ([]Tensor, error) {
	ranks := map[string]int{} // dtype rank by tensor name
	for _, t := range tensors {
		if err := checkName(t.Name); err != nil {
			return nil, err
		}
		if _, ok := ranks[t.Name]; ok {
			return nil, fmt.Errorf("tensor %q: a name must be unique", t.Name)
		}
		if len(t.Shape) > maxDims {
			return nil, fmt.Errorf("tensor %q: %d dimensions are more than %d", t.Name, len(t.Shape), maxDims)
		}
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.Stream == nil && size != int64(len(t.Data)) {
			return nil, fmt.Errorf("tensor %q: %d bytes of data, %s %v takes %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
		dtype, err := lookupDType(t.DType)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		ranks[t.Name] = dtype.rank
	}
	return slices.SortedFunc(slices.Values(tensors), func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(ranks[b.Name], ranks[a.Name]), cmp.Compare(a.Name, b.Name))
	}), nil
}

// encodeHeader returns the length prefix and the JSON, padded with spaces so that the data starts
// aligned.
func encodeHeader(tensors []Tensor, metadata map[string]string, alignment int) ([]byte, error) {
	h := headerBuilder{data: append(make([]byte, 8), '{')}
	if metadata != nil {
		h.key(metadataKey)
		h.data = append(h.data, '{')
		for _, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, fmt.Errorf("metadata %q: keys and values must be UTF-8", k)
			}
			h.key(k)
			h.str(metadata[k])
		}
		h.data = append(h.data, '}')
	}
	var offset int64
	for _, t := range tensors {
		h.key(t.Name)
		h.data = fmt.Appendf(h.data, `{"dtype":"%s","shape":[`, t.DType)
		for i, d := range t.Shape {
			if i > 0 {
				h.data = append(h.data, ',')
			}
			h.data = strconv.AppendInt(h.data, int64(d), 10)
		}
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return nil, err
		}
		end := offset + size
		h.data = fmt.Appendf(h.data, `],"data_offsets":[%d,%d]}`, offset, end)
		offset = end
	}
	h.data = append(h.data, '}')
	for len(h.data)%alignment != 0 {
		h.data = append(h.data, ' ')
	}
	length := int64(len(h.data)) - 8
	if most := mostHeader(8 + length + offset); length > most {
		return nil, fmt.Errorf("the header takes %d bytes, the limit for %d bytes of data is %d: use fewer tensors per file", length, offset, most)
	}
	binary.LittleEndian.PutUint64(h.data, uint64(length))
	return h.data, nil
}

// headerBuilder appends JSON without the HTML escapes and line ends that encoding/json would add.
type headerBuilder struct{ data []byte }

// key appends `"k":`, after a comma unless it opens an object.
func (h *headerBuilder) key(k string) {
	if h.data[len(h.data)-1] != '{' {
		h.data = append(h.data, ',')
	}
	h.str(k)
	h.data = append(h.data, ':')
}

func (h *headerBuilder) str(s string) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string can always be encoded
	}
	h.data = append(h.data, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
