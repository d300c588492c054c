package moe

// Every key of a config.json is accounted for: it is used, it is known to change no result, or the
// file is refused. A key that is missing has the value that the library gives it.

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// hfTable has, by model_type, other names of keys (attribute_map of the class) and the values of
// missing keys: those of to_dict() of the class's Config() in the version of the library, without
// keys that no field has. Its rope_theta stands outside rope_parameters. Left out are keys whose
// meaning never changed: rope_interleave, and num_key_value_heads of latent attention.
//
// It lists the keys that change no result, and those that change none if they are off. Package
// weights reads quantization_config; router_aux_loss_coef counts only with output_router_logits.
//
//go:embed hf_keys.json
var hfTable []byte

// hfKeys are the keys of a JSON object.
type hfKeys map[string]json.RawMessage

// decode fills h from the keys of a config.json. The notes say what was assumed or ignored.
func (h *hfConfig) decode(keys hfKeys) (notes []string, err error) {
	var table struct {
		Library     string
		Harmless    []string
		HarmlessOff []string `json:"harmless_off"`
		Families    map[string]struct {
			Harmless []string
			Aliases  map[string]string
			Defaults hfKeys
		}
	}
	if err := json.Unmarshal(hfTable, &table); err != nil {
		return nil, err
	}
	kind := ""
	_ = json.Unmarshal(keys["model_type"], &kind) // what is no text is no family
	family, ok := table.Families[kind]
	if !ok {
		return nil, fmt.Errorf("model_type is %.100q: only %s are supported", kind, strings.Join(slices.Sorted(maps.Keys(table.Families)), ", "))
	}
	fields := hfFields(reflect.TypeFor[hfConfig](), kind)
	used, rest, harmless := hfKeys{}, hfKeys{}, append(table.Harmless, family.Harmless...)
	for given, value := range keys {
		key := cmp.Or(family.Aliases[given], given)
		field, known := fields[key]
		switch was, twice := used[key]; {
		case known && string(value) == "null" && field.Kind() != reflect.Pointer && field.Kind() != reflect.Slice:
			return nil, fmt.Errorf("%s is null: give its value, or remove the key to take the default of %s", given, table.Library)
		case twice && !bytes.Equal(was, value):
			return nil, fmt.Errorf("%s is there under two names, with different values: remove one of the two", key)
		case known:
			used[key] = value
		case slices.Contains(harmless, key) || slices.Contains(table.HarmlessOff, key) && isOff(value):
		default:
			rest[key] = value
		}
	}
	rotary := hfKeys{} // some keys may stand there; what is no object is an error below
	_ = errors.Join(json.Unmarshal(used["rope_scaling"], &rotary), json.Unmarshal(used["rope_parameters"], &rotary))
	unknown := append(unknownKeys(fields, rest), unknownKeys(hfFields(reflect.TypeFor[ropeParameters](), kind), rotary)...)
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: this program cannot compute that, or does not know what it changes: remove what changes no result (%d in all)",
			strings.Join(unknown[:min(len(unknown), 3)], ", "), len(unknown))
	}
	if len(rest) > 0 {
		notes = append(notes, "config.json has keys that are unknown, and off: "+strings.Join(slices.Sorted(maps.Keys(rest)), ", "))
	}
	var assumed []string
	for _, key := range slices.Sorted(maps.Keys(family.Defaults)) {
		if used[key] == nil && rotary[key] == nil {
			used[key] = family.Defaults[key]
			assumed = append(assumed, fmt.Sprintf("%s %s", key, used[key]))
		}
	}
	if len(assumed) > 0 {
		notes = append(notes, fmt.Sprintf("config.json lacks %s: these are the defaults of %s", strings.Join(assumed, ", "), table.Library))
	}
	text, err := json.Marshal(used)
	if err == nil {
		err = json.Unmarshal(text, h)
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		err = fmt.Errorf("%s: %.100s given, %v expected", wrong.Field[strings.LastIndex(wrong.Field, ".")+1:], wrong.Value, wrong.Type.Kind())
	}
	return notes, err
}

// unknownKeys lists the keys that no field has, except those that are off.
func unknownKeys(fields map[string]reflect.Type, keys hfKeys) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if _, known := fields[key]; !known && !isOff(keys[key]) {
			all = append(all, fmt.Sprintf("%.60s %.40s", key, keys[key]))
		}
	}
	return all
}

// hfFields returns the types of the fields of a struct by their keys, of those that a family has.
func hfFields(t reflect.Type, family string) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if of, some := f.Tag.Lookup("hf"); !some || slices.Contains(strings.Fields(of), family) {
			fields[key] = f.Type
		}
	}
	return fields
}

// isOff reports whether a value is missing, null, false, zero or empty.
func isOff(value json.RawMessage) bool {
	var x any
	_ = json.Unmarshal(value, &x)
	v := reflect.ValueOf(x)
	return x == nil || v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}
