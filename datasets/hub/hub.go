// Package hub finds datasets in the cache on disk of huggingface_hub, which has the files of
// repositories. It reads no network.
package hub

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Prefix begins the name of a dataset where a path could stand.
const Prefix = "hf:"

// syntax says how a dataset is named.
const syntax = "expected hf:NAME[:CONFIG][/SPLIT], such as hf:roneneldan/TinyStories/train or hf:allenai/c4:en"

// File is a file of a dataset.
type File struct {
	Name string // NAME/PATH: the same wherever the cache is
	Path string
}

// Find returns the files of a dataset, in the order of their names. name is NAME[:CONFIG][/SPLIT]
// without [Prefix]. CONFIG is a folder of the repository, SPLIT a split or an alias of one. Without
// SPLIT it is train, or all files if no file belongs to train. Errors list what there is.
func Find(name string) (files []File, err error) {
	dataset, config, split, err := parse(name)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cacheFolder(), "datasets--"+strings.ReplaceAll(dataset, "/", "--"))
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("%s%s is not in the cache %s: set HF_HOME or HF_HUB_CACHE if the cache is elsewhere, or download it with: hf download --repo-type dataset %s",
			Prefix, name, filepath.Dir(folder), dataset)
	}
	root, err := snapshot(folder)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", Prefix, name, err)
	}
	names, err := dataFiles(root)
	if config != "" && !slices.ContainsFunc(names, func(file string) bool { return isBelow(file, config) }) {
		if at := strings.LastIndexByte(config, '/'); at > 0 {
			config, split = config[:at], config[at+1:]
		}
	}
	if err == nil {
		names, err = inConfig(names, config)
	}
	if err == nil {
		names, err = inSplit(names, split)
	}
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", Prefix, name, err)
	}
	for _, file := range names {
		files = append(files, File{path.Join(dataset, file), filepath.Join(root, filepath.FromSlash(file))})
	}
	return files, nil
}

// parse returns the dataset, its configuration, which may end with the split, and otherwise the
// split.
func parse(name string) (dataset, config, split string, err error) {
	dataset, config, configured := strings.Cut(name, ":")
	parts := strings.Split(dataset, "/")
	if !configured && len(parts) == 3 {
		dataset, split = parts[0]+"/"+parts[1], parts[2]
		parts = parts[:2]
	}
	valid := func(path string) bool { return fs.ValidPath(path) && path != "." }
	if !valid(dataset) || configured && !valid(config) || strings.Contains(name, `\`) || len(parts) > 2 {
		return "", "", "", fmt.Errorf("%s%.100s: %s", Prefix, name, syntax)
	}
	return dataset, config, split, nil
}

// cacheFolder returns the folder that huggingface_hub uses with the same environment.
func cacheFolder() string {
	user, _ := os.UserHomeDir() // without one the cache is relative, and most likely empty
	base := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(user, ".cache"))
	home := cmp.Or(os.Getenv("HF_HOME"), filepath.Join(base, "huggingface"))
	return cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
}

// snapshot returns the folder of the revision main, or of the only one.
func snapshot(folder string) (string, error) {
	main := filepath.Join(folder, "refs", "main")
	if info, err := os.Stat(main); err == nil && info.Mode().IsRegular() { // a pipe would block
		text, _ := os.ReadFile(main)
		at := filepath.Join(folder, "snapshots", filepath.Base(strings.TrimSpace(string(text))))
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return at, nil
		}
	}
	have, _ := filepath.Glob(filepath.Join(folder, "snapshots", "[^.]*"))
	if len(have) != 1 {
		return "", fmt.Errorf("%s has %d snapshots, and none of them is that of refs/main: download it again, or give the files of one, in its folder snapshots", folder, len(have))
	}
	return have[0], nil
}

// extensions are those of files with data, and descriptions are JSON files about a dataset.
var (
	extensions   = []string{".parquet", ".jsonl", ".ndjson", ".json", ".arrow", ".txt"}
	descriptions = []string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json"}
)

// dataFiles returns the paths of the files with data below a folder, of the most frequent kind,
// sorted.
func dataFiles(root string) (files []string, err error) {
	byKind := map[string][]string{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		kind := path.Ext(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"))
		hidden := strings.Contains("/"+name, "/.")
		if !hidden && slices.Contains(extensions, kind) && !slices.Contains(descriptions, path.Base(name)) {
			byKind[kind] = append(byKind[kind], name)
		}
		return nil
	})
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		if len(byKind[kind]) > len(files) {
			files = byKind[kind]
		}
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no Parquet, JSON, Arrow or text file: download its data too", root)
	}
	slices.Sort(files)
	return files, err
}

// inConfig returns the files of a configuration: those in its folder, which may be in the folder
// data. Without a configuration, it returns the files that are in no configuration's folder, or
// those of the only configuration.
func inConfig(all []string, config string) (chosen []string, err error) {
	configs := map[string]bool{}
	for _, name := range all {
		configs[configOf(name)] = true
		if config != "" && isBelow(name, config) || config == "" && configOf(name) == "" {
			chosen = append(chosen, name)
		}
	}
	if config == "" && len(configs) == 1 {
		chosen = all
	}
	if len(chosen) == 0 {
		return nil, missing("configuration", config, configs)
	}
	return chosen, nil
}

// isBelow reports whether a file is in the folder of a configuration. The configuration sample-10BT
// may be in the folder sample/10BT.
func isBelow(name, config string) bool {
	for _, below := range []string{name, strings.TrimPrefix(name, "data/")} {
		if n := len(config); len(below) > n && below[n] == '/' && (below[:n] == config || strings.ReplaceAll(below[:n], "/", "-") == config) {
			return true
		}
	}
	return false
}

// configOf returns the configuration of a file: the first folder on its way that is neither the
// folder data nor one of a split. It is empty for files without one.
func configOf(name string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Dir(name)+"/", "data/"), "/")
	if first == "." || first == "default" || aliases[strings.ToLower(first)] != "" {
		return ""
	}
	return first
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
	own := "" // what the name of a shard says
	if m := shard.FindStringSubmatch(path.Base(name)); m != nil {
		own = m[1]
		if split := aliases[strings.ToLower(own)]; split != "" {
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
	return own
}

// inSplit returns the files of a split. Without one, it returns those of train or, if there are
// none, all files.
func inSplit(all []string, split string) (chosen []string, err error) {
	splits := map[string]bool{}
	wanted := cmp.Or(aliases[strings.ToLower(split)], split, "train")
	for _, name := range all {
		splits[splitOf(name)] = true
		if splitOf(name) == wanted {
			chosen = append(chosen, name)
		}
	}
	unnamed := len(splits) == 1 && splits[""]
	switch {
	case len(chosen) > 0:
		return chosen, nil
	case split == "" || wanted == "train" && unnamed:
		return all, nil
	}
	return nil, missing("split", split, splits)
}

// missing refuses a configuration or a split that is not among those of a dataset.
func missing(what, given string, have map[string]bool) error {
	delete(have, "")
	names := strings.Join(slices.Sorted(maps.Keys(have)), ", ")
	switch {
	case names == "":
		return fmt.Errorf("it has no %s %q and no other: leave it out", what, given)
	case given == "":
		return fmt.Errorf("it has several %ss: give one of %s (%s)", what, names, syntax)
	}
	return fmt.Errorf("it has no %s %q: give one of %s", what, given, names)
}
