package runs

// The settings that differ between runs.

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/report/figure"
	"spmoe/launcher/report/overview"
)

// setting is a key of the configuration with its value in each run.
type setting struct {
	Key    string
	Values []string
}

// differences returns the settings whose values differ between runs, sorted by key. The folder of a
// run is none.
func differences(list []overview.Run) (all []setting) {
	values := make([]map[string]string, len(list))
	keys := map[string]bool{}
	for i, r := range list {
		values[i] = flatten(r.Config)
		for key := range values[i] {
			keys[key] = true
		}
	}
	delete(keys, "out")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		s := setting{Key: key}
		for i := range list {
			value, ok := values[i][key]
			if !ok {
				value = figure.Missing
			}
			s.Values = append(s.Values, value)
		}
		if len(slices.Compact(slices.Clone(s.Values))) > 1 {
			all = append(all, s)
		}
	}
	return all
}

// flatten returns the values of a TOML text by their full keys, such as optimizer.lr. It returns
// none if the text is not TOML.
func flatten(text string) map[string]string {
	var root map[string]any
	if toml.Unmarshal([]byte(text), &root) != nil {
		return nil
	}
	flat := map[string]string{}
	var add func(prefix string, table map[string]any)
	add = func(prefix string, table map[string]any) {
		for key, value := range table {
			if inner, ok := value.(map[string]any); ok {
				add(prefix+key+".", inner)
			} else {
				flat[prefix+key] = fmt.Sprint(value)
			}
		}
	}
	add("", root)
	return flat
}
