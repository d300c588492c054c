package cli

import (
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// A run's configuration: the flavor's defaults, overridden by the config file, overridden by flags.

// Setting is the flag.Value of a field of trainer.Config. It records what the flag is set to in
// given, because the configuration that it overrides is known later.
type Setting struct {
	Field []int // reflect index
	Kind  reflect.Type
	Given *[]Assignment
	from  Defaults
}

// Assignment is a field and the value that a flag gave it.
type Assignment struct {
	Field []int
	value reflect.Value
}

// String implements [flag.Value]. Defaults are those of initial: they cost too much for each start.
func (s *Setting) String() string { return "" }

// initial describes the field's default in the default flavor.
func (s *Setting) initial() string {
	cfg, err := s.from(DefaultFlavor, 0)
	if err != nil || s.Kind.Kind() == reflect.Slice {
		return ""
	}
	return fmt.Sprint(reflect.ValueOf(cfg).FieldByIndex(s.Field).Interface())
}

// Keys is the flag.Value of --set KEY=VALUE. It reaches every key of a configuration, also those
// that have no flag.
type Keys struct{ all *flag.FlagSet }

// String implements [flag.Value].
func (k *Keys) String() string { return "" }

// Set implements [flag.Value].
func (k *Keys) Set(text string) error {
	f, value, err := k.find(text)
	if err != nil {
		return err
	}
	return f.Value.Set(value)
}

// find returns the key in KEY=VALUE, as a flag that has no name on the command line, and the value.
func (k *Keys) find(text string) (f *flag.Flag, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return nil, "", fmt.Errorf("--set %.*q: give KEY=VALUE, such as optimizer.beta2=0.99", LongestWord, text)
	}
	if f = k.all.Lookup(strings.ReplaceAll(key, "_", "-")); f == nil {
		return nil, "", fmt.Errorf("--set: unknown key %.*q%s (launcher help train --all lists them)", LongestWord, key, meantKey(key))
	}
	return f, value, nil
}

// IsBoolFlag reports whether the flag may have no value.
func (s *Setting) IsBoolFlag() bool { return s.Kind != nil && s.Kind.Kind() == reflect.Bool }

// Set checks that the text is a value of the field's type. Each use of a list flag adds to the
// list.
func (s *Setting) Set(text string) error {
	v := reflect.New(s.Kind).Elem()
	if own, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := own.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		*s.Given = append(*s.Given, Assignment{s.Field, v})
		return nil
	}
	var err error
	switch s.Kind.Kind() {
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
		panic("launcher: a config field of type " + s.Kind.String())
	}
	if err != nil {
		return fmt.Errorf("it must be %s", kindNames[s.Kind.Kind()])
	}
	*s.Given = append(*s.Given, Assignment{s.Field, v})
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

// Defaults returns the configuration that a run of a flavor starts from. steps is the requested
// number of steps, or 0 if none was given.
type Defaults func(flavor string, steps int) (config.Config, error)

// TrainDefaults returns the configuration of a flavor that a run has without flags.
func TrainDefaults(flavor string, steps int) (config.Config, error) {
	cfg, err := config.Default(flavor)
	if steps > 0 {
		cfg.SetSteps(steps)
	}
	return cfg, err
}

// Bind defines --set for every field of the configuration, and a flag for those with the tag flag.
// It returns the list in which they record their values.
func Bind(fs *flag.FlagSet, from Defaults) *[]Assignment {
	s, keys := Setting{Given: new([]Assignment), from: from}, flag.NewFlagSet(fs.Name(), flag.ContinueOnError)
	s.bind(fs, keys, reflect.TypeFor[config.Config](), "")
	fs.Var(&Keys{keys}, "set", "(run) `KEY=VALUE` set a key of the configuration, such as optimizer.beta2=0.99")
	return s.Given
}

// DefaultFlavor is the flavor of a run that names none.
const DefaultFlavor = "debug"

// Flavors returns the names of all flavors.
func Flavors() []string {
	var all []string
	for _, f := range moe.Flavors() {
		all = append(all, f.Name)
	}
	return all
}

// bind defines keys and flags like s for the fields of a part of the configuration, which s stands
// for.
func (s Setting) bind(fs, keys *flag.FlagSet, part reflect.Type, prefix string) {
	for i := range part.NumField() {
		f := part.Field(i)
		name := prefix + strings.ReplaceAll(stricttoml.Key(f), "_", "-")
		of := s
		of.Field, of.Kind = append(s.Field[:len(s.Field):len(s.Field)], i), f.Type
		switch {
		case f.Anonymous:
			of.bind(fs, keys, f.Type, prefix)
			continue
		case f.Type.Kind() == reflect.Struct:
			of.bind(fs, keys, f.Type, name+".")
			continue
		}
		usage := placeholder(f.Type) + f.Tag.Get("help")
		keys.Var(&of, name, usage)
		if f.Tag.Get("flag") == "yes" {
			fs.Var(&of, name, usage)
		}
	}
}

// placeholder names a flag's value in the help.
func placeholder(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[config.Interval]():
		return "`N|TIME` "
	case reflect.TypeFor[config.Duration]():
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

// Gives reports whether flags set one of some fields of the configuration, by their Go names.
func Gives(given []Assignment, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		field, _ := reflect.TypeFor[config.Config]().FieldByName(name)
		return slices.ContainsFunc(given, func(a Assignment) bool { return slices.Equal(a.Field, field.Index) })
	})
}

// Apply sets the fields that flags gave. The first use of a list flag replaces the list, and later
// ones append to it.
func Apply(cfg *config.Config, given []Assignment) {
	listed := map[string]bool{}
	for _, a := range given {
		field := reflect.ValueOf(cfg).Elem().FieldByIndex(a.Field)
		if key := fmt.Sprint(a.Field); field.Kind() == reflect.Slice && listed[key] {
			field.Set(reflect.AppendSlice(field, a.value))
			continue
		} else {
			listed[key] = true
		}
		field.Set(a.value)
	}
}

// Explicit returns a configuration with nothing but what the text of a config file and flags set.
func Explicit(name string, text []byte, given []Assignment) (cfg config.Config, err error) {
	text, _ = WithoutGoneKeys(text)
	if err := stricttoml.Unmarshal(text, &cfg); err != nil {
		return cfg, Locate(name, err)
	}
	Apply(&cfg, given)
	return cfg, nil
}

// Resolve returns the defaults, overridden by the text of a config file (nil: none), overridden by
// flags. name is the file's name for error messages.
func Resolve(from Defaults, name string, text []byte, given []Assignment) (config.Config, error) {
	text, _ = WithoutGoneKeys(text)
	// Flavor and steps come first, because the defaults depend on them.
	picked := config.Config{Flavor: DefaultFlavor}
	if err := stricttoml.Unmarshal(text, &picked); err != nil {
		return picked, Locate(name, err)
	}
	// Runs of earlier versions have all keys but this one.
	old := picked.DataRules == 0 && picked.Seq != 0 && picked.Batch != 0 && picked.Keep != 0 && picked.LogEvery != 0
	Apply(&picked, given)
	cfg, err := from(picked.Flavor, picked.Steps)
	if err != nil {
		return cfg, err
	}
	if picked.ScheduleSteps > 0 {
		planned, err := from(picked.Flavor, picked.ScheduleSteps)
		if err != nil {
			return cfg, err
		}
		cfg.Optimizer.Warmup = planned.Optimizer.Warmup
	}
	if old {
		cfg.DataRules = int(datasets.FirstRules)
	}
	if err := stricttoml.Unmarshal(text, &cfg); err != nil {
		return cfg, Locate(name, err)
	}
	Apply(&cfg, given)
	return cfg, cfg.ReadRecipe()
}

// WithoutGoneKeys blanks the lines of keys of earlier versions that change no bit. notes has what
// to do about those that did something.
func WithoutGoneKeys(text []byte) (kept []byte, notes []string) {
	lines := strings.SplitAfter(string(text), "\n")
	for range 1 + len(goneKeys) { // a key stands once
		kept = []byte(strings.Join(lines, ""))
		unknown := (*stricttoml.KeyError)(nil)
		if !errors.As(stricttoml.Unmarshal(kept, new(config.Config)), &unknown) {
			return kept, notes
		}
		gone, known := goneKeys[unknown.Key]
		_, value, _ := strings.Cut(lines[unknown.Line-1], "=")
		value = strings.ReplaceAll(strings.TrimSpace(value), "'", `"`)
		whole := !strings.HasPrefix(value, "[") || strings.HasSuffix(value, "]")
		if !known || !whole || gone.refused && value != gone.same {
			return kept, notes // the decoder reports it
		}
		if value != gone.same {
			notes = append(notes, fmt.Sprintf("%s is gone: %s", unknown.Key, gone.advice))
		}
		lines[unknown.Line-1] = "\n"
	}
	return kept, notes
}

// Locate adds the file name, line and column to an error in a config file.
func Locate(name string, err error) error {
	if unknown := (*stricttoml.KeyError)(nil); errors.As(err, &unknown) {
		if gone, ok := goneKeys[unknown.Key]; ok {
			return fmt.Errorf("%s:%d: %s is gone: %s", name, unknown.Line, unknown.Key, gone.advice)
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

// ReadConfig reads a config file. It returns nil for an empty path.
func ReadConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if err != nil {
		const hint = "give a TOML file (launcher train --dry-run prints one)"
		return nil, fmt.Errorf("--config: %w: %s", err, hint)
	}
	if json.Valid(text) {
		return nil, fmt.Errorf("--config: %s is JSON, as a model's config.json, not TOML: give the folder of a Hugging Face model to --init-from", path)
	}
	return text, nil
}

// AppendData adds the arguments to --data if it was given, so that --data takes several paths.
func AppendData(given []Assignment, args []string) ([]Assignment, error) {
	if len(args) == 0 {
		return given, nil
	}
	for _, a := range given {
		if a.value.Type() == reflect.TypeFor[[]string]() {
			return append(given, Assignment{a.Field, reflect.ValueOf(args)}), nil
		}
	}
	return nil, fmt.Errorf("unexpected argument %q (only --data takes several values; --help lists the flags)", strings.Join(args, " "))
}
