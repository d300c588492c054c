package main

import (
	"encoding"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// A run's configuration: the flavor's defaults, overridden by the config file, overridden by flags.

// setting is the flag.Value of a field of trainer.Config. It records what the flag is set to in
// given, because the configuration that it overrides is known later.
type setting struct {
	field  []int // reflect index
	kind   reflect.Type
	given  *[]assignment
	models func() []trainer.Config // the defaults of all whole models
}

// assignment is a field and the value that a flag gave it.
type assignment struct {
	field []int
	value reflect.Value
}

// String implements [flag.Value]. Defaults are those of initial: they cost too much for each start.
func (s *setting) String() string { return "" }

// initial describes the field's default in a flavor. Without one, or if it is not a whole model's,
// it describes all: "0.1", or "128 for debug, 512 for small".
func (s *setting) initial(flavor string) string {
	if s.kind.Kind() == reflect.Slice {
		return ""
	}
	names := map[string][]string{} // of the flavors with a value
	var order []string
	models := s.models()
	for i, name := range wholeModels() {
		text := fmt.Sprint(reflect.ValueOf(models[i]).FieldByIndex(s.field).Interface())
		if name == flavor && text != "" {
			return text
		}
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], name)
	}
	if len(order) == 1 {
		return order[0]
	}
	for i, text := range order {
		order[i] += " for " + strings.Join(names[text], "/")
	}
	return strings.Join(order, ", ")
}

func (s *setting) IsBoolFlag() bool { return s.kind != nil && s.kind.Kind() == reflect.Bool }

// Set checks that the text is a value of the field's type. Each use of a list flag adds to the
// list.
func (s *setting) Set(text string) error {
	v := reflect.New(s.kind).Elem()
	if own, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := own.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		*s.given = append(*s.given, assignment{s.field, v})
		return nil
	}
	var err error
	switch s.kind.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Int:
		var n int
		n, err = strconv.Atoi(text)
		v.SetInt(int64(n))
	case reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
	case reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		v.SetFloat(f)
	case reflect.Slice:
		v = reflect.Append(v, reflect.ValueOf(text))
	default:
		panic("launcher: a config field of type " + s.kind.String())
	}
	if err != nil {
		return fmt.Errorf("it must be %s", kindNames[s.kind.Kind()])
	}
	*s.given = append(*s.given, assignment{s.field, v})
	return nil
}

// kindNames describes the values of a field or a flag, by its type.
var kindNames = map[reflect.Kind]string{
	reflect.Bool:    "true or false",
	reflect.Int:     "a whole number",
	reflect.Int64:   "a whole number",
	reflect.Uint64:  "a whole number, 0 or more",
	reflect.Float64: "a number",
	reflect.String:  "text in quotes",
}

// defaults returns the configuration that a run of a flavor starts from. steps is the requested
// number of steps, or 0 if none was given.
type defaults func(flavor string, steps int) (trainer.Config, error)

func trainDefaults(flavor string, steps int) (trainer.Config, error) {
	cfg, err := trainer.Default(flavor)
	if steps > 0 {
		cfg.SetSteps(steps)
	}
	return cfg, err
}

// bind defines a flag for every field of the configuration. It returns the list in which the flags
// record their values.
func bind(fs *flag.FlagSet, from defaults) *[]assignment {
	s := setting{given: new([]assignment), models: sync.OnceValue(func() (all []trainer.Config) {
		for _, flavor := range wholeModels() {
			cfg, err := from(flavor, 0)
			if err != nil {
				panic(err)
			}
			cfg.Flavor = defaultFlavor
			all = append(all, cfg)
		}
		return all
	})}
	s.bind(fs, reflect.TypeFor[trainer.Config](), "")
	return s.given
}

const defaultFlavor = "debug"

// bind defines flags like s for the fields of a part of the configuration, which s stands for.
func (s setting) bind(fs *flag.FlagSet, part reflect.Type, prefix string) {
	for i := range part.NumField() {
		f := part.Field(i)
		name := prefix + strings.ReplaceAll(stricttoml.Key(f), "_", "-")
		of := s
		of.field, of.kind = append(s.field[:len(s.field):len(s.field)], i), f.Type
		switch {
		case f.Anonymous:
			of.bind(fs, f.Type, prefix)
		case f.Type.Kind() == reflect.Struct:
			of.bind(fs, f.Type, name+".")
		default:
			fs.Var(&of, name, placeholder(f.Type)+f.Tag.Get("help"))
		}
	}
}

// placeholder names a flag's value in the help.
func placeholder(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[trainer.Interval]():
		return "`N|TIME` "
	case reflect.TypeFor[trainer.Duration]():
		return "`TIME` "
	}
	switch t.Kind() {
	case reflect.Bool:
		return ""
	case reflect.Slice:
		return "`PATH` "
	case reflect.String:
		return "`TEXT` "
	case reflect.Float64:
		return "`X` "
	}
	return "`N` "
}

// apply sets the fields that flags gave. The first use of a list flag replaces the list, and later
// ones append to it.
func apply(cfg *trainer.Config, given []assignment) {
	listed := map[string]bool{}
	for _, a := range given {
		field := reflect.ValueOf(cfg).Elem().FieldByIndex(a.field)
		if key := fmt.Sprint(a.field); field.Kind() == reflect.Slice && listed[key] {
			field.Set(reflect.AppendSlice(field, a.value))
			continue
		} else {
			listed[key] = true
		}
		field.Set(a.value)
	}
}

// resolve returns the defaults, overridden by the text of a config file (nil: none), overridden by
// flags. name is the file's name for error messages.
func resolve(from defaults, name string, text []byte, given []assignment) (trainer.Config, error) {
	text = renameKeys(text)
	// Flavor and steps come first, because the defaults depend on them.
	picked := trainer.Config{Flavor: defaultFlavor}
	if err := stricttoml.Unmarshal(text, &picked); err != nil {
		return picked, locate(name, err)
	}
	apply(&picked, given)
	cfg, err := from(picked.Flavor, picked.Steps)
	if err != nil {
		return cfg, err
	}
	if err := stricttoml.Unmarshal(text, &cfg); err != nil {
		return cfg, locate(name, err)
	}
	if err := checkWords(reflect.ValueOf(cfg), ""); err != nil {
		return cfg, fmt.Errorf("%s: %w", name, err)
	}
	apply(&cfg, given)
	return cfg, cfg.ReadRecipe()
}

// oldExchange is the key ep of earlier versions, which was the exchange's name. It is a number now.
var oldExchange = regexp.MustCompile(`(?m)^ep( *= *['"])`)

// oldSum is the key fp8.accumulate of earlier versions, with its default.
var oldSum = regexp.MustCompile(`(?m)^accumulate *= *['"]fp32['"]$`)

// renameKeys gives keys of earlier versions their present names, and blanks lines that say what is
// always so now.
func renameKeys(text []byte) []byte {
	return oldSum.ReplaceAll(oldExchange.ReplaceAll(text, []byte("ep_exchange$1")), nil)
}

// checkWords returns an error if the text of a key below a section is nearly one that the key
// takes. Flags are checked when they are set.
func checkWords(v reflect.Value, prefix string) error {
	for i := range v.NumField() {
		f, key := v.Type().Field(i), prefix+stricttoml.Key(v.Type().Field(i))
		var err error
		switch {
		case f.Anonymous:
			err = checkWords(v.Field(i), prefix)
		case f.Type.Kind() == reflect.Struct:
			err = checkWords(v.Field(i), key+".")
		case f.Type.Kind() == reflect.String:
			flag, word := strings.ReplaceAll(key, "_", "-"), v.Field(i).String()
			named := key == "flavor" || key == "precision" && v.FieldByName("RecipeFile").String() != ""
			if !named && !strings.Contains(word, ",") { // a comparison lists precisions
				err = checkWord(key+" is", flag, word, flagChoices("train", flag))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// locate adds the file name, line and column to an error in a config file.
func locate(name string, err error) error {
	if unknown := (*stricttoml.KeyError)(nil); errors.As(err, &unknown) {
		if unknown.Key == "fp8.accumulate" {
			return fmt.Errorf("%s:%d: fp8.accumulate is gone, because the sums of 14bit were not those of any GPU: remove the line to add in FP32, which gives other bits",
				name, unknown.Line)
		}
		return fmt.Errorf("%s:%d: unknown key %.100q%s (launcher train --dry-run prints all keys)",
			name, unknown.Line, unknown.Key, meantKey(unknown.Key))
	}
	if wrong := (*stricttoml.SyntaxError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%s:%d:%d: %.500s", name, wrong.Line, wrong.Column, wrong.Message)
	}
	if decode := (*toml.DecodeError)(nil); errors.As(err, &decode) {
		row, column := decode.Position()
		message := plain(decode.Error())
		if key := strings.Join(decode.Key(), "."); key != "" {
			message = key + ": " + message
		}
		message = fmt.Sprintf("%.500s", message) // it quotes the file
		return fmt.Errorf("%s:%d:%d: %s", name, row, column, message)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// plain replaces the names of Go types in a decoder's message.
func plain(message string) string {
	message = strings.TrimPrefix(message, "toml: ")
	given, field, ok := strings.Cut(message, " into struct field ")
	if !ok {
		return message
	}
	_, kind, _ := strings.Cut(field, " of type ")
	for k, what := range kindNames {
		if k.String() == kind {
			kind = what
		}
	}
	return given + ": it must be " + kind
}

// readConfig reads a config file. It returns nil for an empty path.
func readConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if err != nil {
		const hint = "give a TOML file (launcher train --dry-run prints one)"
		return nil, fmt.Errorf("--config: %w: %s", err, hint)
	}
	return text, nil
}
