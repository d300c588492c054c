// Package strictjson decodes untrusted JSON. It refuses what encoding/json tolerates: duplicate
// keys in an object, in any case, bytes that are not UTF-8, and values nested deeper than any
// format of this project.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth is the maximum nesting of arrays and objects.
const maxDepth = 32

// maxMessage bounds the length of an error's text in characters, because the decoder quotes numbers
// of any length.
const maxMessage = 300

// Unmarshal is [json.Unmarshal] of one value under the rules of this package. An error names the
// offset in data, in bytes, and the violated rule. Time and memory are linear in the length of
// data.
func Unmarshal(data []byte, v any) error {
	if err := check(data); err != nil {
		return err
	}
	err := json.Unmarshal(data, v)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("offset %d: %.*s", wrong.Offset, maxMessage, err.Error())
	} else if err != nil { // of a value that decodes itself
		return fmt.Errorf("%.*s", maxMessage, err.Error())
	}
	return nil
}

// check checks data, which must be one value.
func check(data []byte) error {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return errors.New("offset 0: nothing is there where a JSON value must be")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return errors.New("offset 0: the text begins with a byte order mark: JSON has none")
	case !utf8.Valid(data):
		return errors.New("the text is not UTF-8")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	err := w.value()
	if err == nil {
		if _, err = w.dec.Token(); err == nil {
			err = errors.New("more follows behind the value")
		} else if err == io.EOF {
			return nil
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("the text ends before the value does")
	}
	offset := w.dec.InputOffset()
	if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) {
		offset = max(offset, wrong.Offset)
	}
	return fmt.Errorf("offset %d: %.*s", offset, maxMessage, err.Error())
}

// walker reads tokens and records their position.
type walker struct {
	dec   *json.Decoder
	depth int
}

func (w *walker) value() error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if w.depth++; w.depth > maxDepth {
		return fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	keys := map[string]bool{} // of an object
	for w.dec.More() {
		if delim == '{' {
			if err := w.key(keys); err != nil {
				return err
			}
		}
		if err := w.value(); err != nil {
			return err
		}
	}
	w.depth--
	_, err = w.dec.Token()
	return err
}

// key reads a key, which must not be in seen. The decoder would treat keys that differ only in case
// as the same field.
func (w *walker) key(seen map[string]bool) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	key, _ := token.(string)
	folded := strings.ToLower(strings.ToUpper(key))
	if seen[folded] {
		return fmt.Errorf("the key %.100q is there twice", key)
	}
	seen[folded] = true
	return nil
}
