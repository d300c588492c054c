package record

// The rules for lines of a record, which its readers rely on.

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxLine    = 1 << 20     // bytes, including the line end
	maxName    = 256         // bytes
	maxSample  = 64 << 10    // bytes of a prompt or of a text
	maxEntries = 64          // of a map, such as the kinds of work
	maxCount   = 1 << 53     // of integers
	maxMeasure = 1e100       // of other numbers: above any sum of squares of FP32 numbers
	maxValues  = maxLine / 2 // of a list
)

// check returns an error if a line breaks a rule. It has one key. Integers count something. Numbers
// can be drawn and computed with, or are not finite. Names can be shown.
func (l Line) check() error {
	kind := reflect.Value{}
	for i, fields := 0, reflect.ValueOf(l); i < fields.NumField(); i++ {
		if field := fields.Field(i); field.IsNil() {
			continue
		} else if kind.IsValid() {
			return errors.New("it has several keys, expected one")
		} else {
			kind = field.Elem()
		}
	}
	if !kind.IsValid() {
		return errors.New("it has none of the known keys")
	}
	return check(kind.Type().Name(), kind)
}

// check checks a value and what is in it. what names it in errors.
func check(what string, v reflect.Value) (err error) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			err = check(what, v.Elem())
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			err = check(what+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		if v.Len() > maxValues {
			return fmt.Errorf("%s has %d values, expected at most %d", what, v.Len(), maxValues)
		}
		for i := 0; i < v.Len() && err == nil; i++ {
			err = check(what, v.Index(i))
		}
	case reflect.Map:
		if v.Len() > maxEntries {
			return fmt.Errorf("%s has %d entries, expected at most %d", what, v.Len(), maxEntries)
		}
		for entry := v.MapRange(); entry.Next() && err == nil; {
			err = errors.Join(check(what, entry.Key()), check(what, entry.Value()))
		}
	case reflect.Int, reflect.Int64:
		if v.Int() < 0 || v.Int() > maxCount {
			err = fmt.Errorf("%s is %d, expected 0 to %d", what, v.Int(), int64(maxCount))
		}
	case reflect.Float32, reflect.Float64:
		if x := v.Float(); math.Abs(x) > maxMeasure && !math.IsInf(x, 0) { // an infinity is written as null
			err = fmt.Errorf("%s is %g, beyond %g", what, x, maxMeasure)
		}
	case reflect.String:
		err = named(what, v.String())
	}
	return err
}

// named checks a word that reports show. A sample may be any text.
func named(what, word string) error {
	if sample := strings.HasPrefix(what, "Sample."); sample && len(word) <= maxSample {
		return nil
	}
	if len(word) > maxName || !utf8.ValidString(word) || strings.ContainsFunc(word, unicode.IsControl) {
		return fmt.Errorf("%s is %.100q: it has control characters or more than %d bytes", what, word, maxName)
	}
	return nil
}
