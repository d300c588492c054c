// Package stricttoml decodes untrusted TOML into structs. Every key must be a field's own name,
// letter by letter, and time and memory are linear in the length of the text. The decoder's own
// check for unknown keys takes gigabytes for a file of 60 KB.
package stricttoml

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// MaxSize is the maximum size of a text in bytes: a hundred times that of a configuration, and
// enough for thousands of paths.
const MaxSize = 256 << 10

// KeyError is a key without a field.
type KeyError struct {
	Line int    // from 1
	Key  string // with the enclosing tables, joined by dots
}

// Error implements error.
func (e *KeyError) Error() string { return fmt.Sprintf("line %d: unknown key %.100q", e.Line, e.Key) }

// SyntaxError is a place where text is not valid TOML.
type SyntaxError struct {
	Line, Column int // from 1; the column in bytes
	Message      string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %.300s", e.Line, e.Message) }

// Unmarshal decodes text into the struct that v points to. Fields that are not in text keep their
// values. Its errors are a [*SyntaxError], a [*KeyError], a [*toml.DecodeError] for invalid values,
// or describe a rule that the whole text violates.
func Unmarshal(text []byte, v any) error {
	switch {
	case len(text) > MaxSize:
		return fmt.Errorf("%d bytes are too long: expected at most %d", len(text), MaxSize)
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return errors.New("line 1: the text begins with a byte order mark: TOML has none")
	case !utf8.Valid(text):
		return errors.New("the text is not UTF-8")
	}
	if err := checkKeys(text, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	return toml.Unmarshal(text, v)
}

// checkKeys returns the first key without a field in a struct of type t, or the first syntax error.
func checkKeys(text []byte, t reflect.Type) error {
	var p unstable.Parser
	p.Reset(text)
	c := checker{&p, text}
	within, prefix := t, []string(nil)
	for p.NextExpression() {
		var err error
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			within, prefix, err = c.follow(t, nil, e.Key())
		case unstable.KeyValue:
			err = c.keyValue(within, prefix, e)
		}
		if err != nil {
			return err
		}
	}
	if wrong := (*unstable.ParserError)(nil); errors.As(p.Error(), &wrong) {
		before := text[:min(max(cap(text)-cap(wrong.Highlight), 0), len(text))] // the highlighted error is a part of text
		start := 1 + bytes.LastIndexByte(before, '\n')
		return &SyntaxError{1 + bytes.Count(before, []byte("\n")), 1 + len(before) - start, wrong.Message}
	}
	return p.Error()
}

type checker struct {
	parser *unstable.Parser
	text   []byte
}

// follow goes from a type to that of the field that a key of several parts names.
func (c checker) follow(t reflect.Type, prefix []string, key unstable.Iterator) (reflect.Type, []string, error) {
	path := prefix[:len(prefix):len(prefix)]
	for key.Next() {
		part := key.Node()
		path = append(path, string(part.Data))
		field, ok := fieldOf(t, string(part.Data))
		if !ok {
			line := 1 + bytes.Count(c.text[:part.Raw.Offset], []byte("\n"))
			return nil, nil, &KeyError{line, strings.Join(path, ".")}
		}
		t = field
	}
	return t, path, nil
}

func (c checker) keyValue(t reflect.Type, prefix []string, e *unstable.Node) error {
	t, path, err := c.follow(t, prefix, e.Key())
	if err != nil || e.Value().Kind != unstable.InlineTable {
		return err
	}
	for inner := e.Value().Children(); inner.Next(); {
		if err := c.keyValue(t, path, inner.Node()); err != nil {
			return err
		}
	}
	return nil
}

// Key returns the name of a field in TOML: its tag, without options.
func Key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
	return name
}

// fieldOf returns the type of a struct's field by its name in TOML. It includes the fields of
// embedded structs. An array of tables has the fields of its elements.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			if inner, ok := fieldOf(f.Type, name); ok {
				return inner, true
			}
		} else if Key(f) == name {
			return f.Type, true
		}
	}
	return nil, false
}
