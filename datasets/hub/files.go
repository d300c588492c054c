package hub

// Which files of a repository belong to a configuration and to a split.

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// dataset is a folder with the files of a dataset.
type dataset struct {
	name string
	root string
}

// extensions are the kinds of files with data. The value says whether spmoe reads them.
var extensions = map[string]bool{".parquet": true, ".jsonl": true, ".ndjson": true, ".json": true, ".arrow": true, ".txt": true, ".csv": false}

// infoFile is the file that completes a dataset in the cache of Arrow files.
const infoFile = "dataset_info.json"

// descriptions are JSON files about a dataset.
var descriptions = []string{infoFile, "dataset_infos.json", "dataset_dict.json", "state.json", "config.json"}

// kindOf returns the extension of a file with data, without that of its compression; empty for
// others.
func kindOf(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	base := path.Base(name)
	derived := strings.HasPrefix(base, "cache-") && path.Ext(base) == ".arrow" // of a map or a filter
	if _, known := extensions[path.Ext(name)]; known && !derived && !slices.Contains(descriptions, base) {
		return path.Ext(name)
	}
	return ""
}

// selected returns the files of a configuration and a split.
func (d *dataset) selected(s selection) ([]File, error) {
	all, err := d.files()
	if err != nil {
		return nil, err
	}
	chosen, err := inConfig(all, s)
	if err != nil {
		return nil, err
	}
	chosen, err = inSplit(chosen, s.split)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range chosen {
		files = append(files, File{path.Join(d.name, name), filepath.Join(d.root, filepath.FromSlash(name))})
	}
	return files, nil
}

// files returns the paths of the files with data below the root, of the most frequent kind, sorted.
func (d *dataset) files() ([]string, error) {
	byKind := map[string][]string{}
	err := filepath.WalkDir(d.root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || at == d.root {
			return err
		}
		if strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		below, err := filepath.Rel(d.root, at)
		if err != nil || entry.IsDir() {
			return err
		}
		if name := filepath.ToSlash(below); kindOf(name) != "" {
			byKind[kindOf(name)] = append(byKind[kindOf(name)], name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	best := ""
	for kind, names := range byKind {
		if n := len(byKind[best]); len(names) > n || len(names) == n && kind < best {
			best = kind
		}
	}
	switch {
	case best == "":
		return nil, fmt.Errorf("%s has no Parquet, JSONL, Arrow or text file: download its data too", d.root)
	case !extensions[best]:
		return nil, fmt.Errorf("%s has %s files: convert them to JSONL or Parquet", d.root, best)
	}
	slices.Sort(byKind[best])
	return byKind[best], nil
}

// inConfig returns the files of a configuration: those in its folder, which may be in the folder
// data. Without a configuration, it returns the files that are in no configuration's folder, or
// those of the only configuration.
func inConfig(all []string, s selection) (chosen []string, err error) {
	configs := map[string][]string{}
	for _, name := range all {
		config := configOf(name)
		configs[config] = append(configs[config], name)
	}
	if s.config != "" {
		for _, name := range all {
			if isBelow(name, s.config) || isBelow(strings.TrimPrefix(name, "data/"), s.config) {
				chosen = append(chosen, name)
			}
		}
	} else if chosen = configs[""]; len(chosen) == 0 && len(configs) == 1 {
		chosen = all
	}
	if len(chosen) > 0 {
		return chosen, nil
	}
	var names []string
	for config := range configs {
		if config != "" {
			names = append(names, config)
		}
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("there is no configuration %q and no folder of that name: the dataset has none, so leave it out", s.config)
	case s.config == "":
		return nil, fmt.Errorf("it has several configurations: give one of %s, such as %s%s:%s", strings.Join(names, ", "), Prefix, s.name, names[0])
	}
	return nil, fmt.Errorf("there is no configuration %q and no folder of that name: give one of %s", s.config, strings.Join(names, ", "))
}

// isBelow reports whether a file is in the folder of a configuration. The configuration sample-10BT
// may be in the folder sample/10BT.
func isBelow(name, config string) bool {
	return len(name) > len(config) && name[len(config)] == '/' &&
		(name[:len(config)] == config || strings.ReplaceAll(name[:len(config)], "/", "-") == config)
}

// configOf returns the configuration of a file: the first folder on its way that is neither the
// folder data nor one of a split. It is empty for files without one.
func configOf(name string) string {
	folders := strings.Split(path.Dir(name), "/")
	if folders[0] == "data" {
		folders = folders[1:]
	}
	if len(folders) == 0 || folders[0] == "." || folders[0] == "default" || aliases[strings.ToLower(folders[0])] != "" {
		return ""
	}
	return folders[0]
}

// aliases are the words that name a split in the path of a file.
var aliases = map[string]string{
	"train": "train", "training": "train",
	"validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
	"test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}

// shard matches names such as test_sft-00000-of-00001.parquet, whose last part before the numbers
// is a split.
var shard = regexp.MustCompile(`^(?:.*-)?([^-]+)-\d{5}-of-\d{5}\.`)

// notLetters separates the words in a path.
var notLetters = regexp.MustCompile(`[^a-z]+`)

// splitOf returns the split of a file; empty: none. The name of a shard says it. Otherwise it is a
// word in the name, or in the innermost folder that has such a word. A shard in such a folder
// belongs to the folder's split, if its own name is no alias of one.
func splitOf(name string) string {
	elements := strings.Split(name, "/")
	m := shard.FindStringSubmatch(elements[len(elements)-1])
	if m != nil {
		if split := aliases[strings.ToLower(m[1])]; split != "" {
			return split
		}
		elements = elements[:len(elements)-1]
	}
	for _, element := range slices.Backward(elements) {
		for _, word := range notLetters.Split(strings.ToLower(element), -1) {
			if split := aliases[word]; split != "" {
				return split
			}
		}
	}
	if m != nil {
		return m[1]
	}
	return ""
}

// inSplit returns the files of a split. Without one, it returns those of train or, if there are
// none, all files.
func inSplit(all []string, split string) (chosen []string, err error) {
	wanted := split
	if alias := aliases[strings.ToLower(split)]; alias != "" {
		wanted = alias
	}
	splits := map[string]bool{}
	for _, name := range all {
		of := splitOf(name)
		if splits[of] = true; of == wanted || split == "" && of == "train" {
			chosen = append(chosen, name)
		}
	}
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case split == "", wanted == "train" && len(splits) == 1 && splits[""]:
		return all, nil
	}
	var names []string
	for of := range splits {
		if of != "" {
			names = append(names, of)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, errors.New("its files belong to no split: leave the split out")
	}
	return nil, fmt.Errorf("there is no split %q: give one of %s", split, strings.Join(names, ", "))
}
