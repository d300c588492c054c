package main

import (
	"fmt"
	"slices"
	"strings"
)

// option is a choice that the peer has, the default first.
type option struct {
	Name   string
	Values []string
}

// setting is the chosen value of every option, in the peer's order.
type setting []struct{ name, value string }

// String formats a setting as the peer's --set takes it.
func (s setting) String() string {
	var parts []string
	for _, o := range s {
		parts = append(parts, o.name+"="+o.value)
	}
	return strings.Join(parts, ",")
}

// with returns a setting with another value of option i.
func (s setting) with(i int, value string) setting {
	s = slices.Clone(s)
	s[i].value = value
	return s
}

// start returns the defaults with some values set: "name=value,...". fixed reports which options
// those are.
func start(options []option, set string) (s setting, fixed []bool, err error) {
	given := map[string]string{}
	for _, pair := range strings.FieldsFunc(set, func(r rune) bool { return r == ',' }) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, nil, fmt.Errorf("--set: %q is not NAME=VALUE", pair)
		}
		given[name] = value
	}
	for _, o := range options {
		value, ok := given[o.Name]
		if delete(given, o.Name); !ok {
			value = o.Values[0]
		}
		s, fixed = append(s, struct{ name, value string }{o.Name, value}), append(fixed, ok)
	}
	for name := range given {
		return nil, nil, fmt.Errorf("--set: PyTorch's side has no option %q", name)
	}
	return s, fixed, nil
}

// gain is the factor by which another value must be faster to replace one: less is noise.
const gain = 1.01

// search tries the other values of each option that is not fixed, one option after the other, and
// keeps what is faster. A trial that fails is slower than all others. If every trial fails, the
// error is the first one's.
func search(options []option, s setting, fixed []bool, trial func(setting) (float64, error)) (setting, error) {
	best, first := trial(s)
	for i, o := range options {
		if fixed[i] {
			continue
		}
		from := s
		for _, value := range o.Values {
			if value == from[i].value {
				continue
			}
			if rate, err := trial(from.with(i, value)); err == nil && rate > gain*best {
				best, s = rate, from.with(i, value)
			}
		}
	}
	if best == 0 {
		return s, first
	}
	return s, nil
}
