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

// repositoryPrefix begins the folders of datasets. Their names have -- for a slash.
const repositoryPrefix = "datasets--"

// File is a file of a dataset.
type File struct {
	Name string // NAME/PATH: the same wherever the cache is
	Path string
}

// Find returns the files of a dataset, in the order of their names. name is NAME[:CONFIG][/SPLIT]
// without [Prefix]. CONFIG is a folder of the repository, SPLIT a split or an alias of one. Without
// SPLIT it is train, or all files if no file belongs to train. Errors list what there is.
func Find(name string) ([]File, error) {
	all, err := interpretations(name)
	if err != nil {
		return nil, err
	}
	cache := cacheFolder()
	var failed error // the first one
	for _, s := range all {
		folder := filepath.Join(cache, repositoryPrefix+strings.ReplaceAll(s.name, "/", "--"))
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		files, err := s.files(folder)
		if err == nil {
			return files, nil
		}
		failed = cmp.Or(failed, err)
	}
	if failed != nil {
		return nil, fmt.Errorf("%s%s: %w", Prefix, name, failed)
	}
	var have []string
	for _, folder := range list(cache) {
		if dataset, ok := strings.CutPrefix(folder, repositoryPrefix); ok {
			have = append(have, strings.ReplaceAll(dataset, "--", "/"))
		}
	}
	return nil, fmt.Errorf("%s%s is not in the cache %s, which has %d datasets, %s: set HF_HOME or HF_HUB_CACHE if the cache is elsewhere, or download it with: hf download --repo-type dataset %s",
		Prefix, name, cache, len(have), strings.Join(have[:min(len(have), 20)], ", "), all[0].name)
}

// selection is what a name says.
type selection struct {
	name          string // of the dataset: NAME or ORG/NAME
	config, split string // empty: not given
}

// interpretations returns what a name may mean, in the order in which it is tried. Of two parts,
// the second may be a split, and so may the last part of a configuration.
func interpretations(name string) ([]selection, error) {
	dataset, config, configured := strings.Cut(name, ":")
	parts := strings.Split(dataset, "/")
	valid := func(path string) bool { return fs.ValidPath(path) && path != "." }
	if !valid(dataset) || configured && !valid(config) || strings.Contains(name, `\`) || len(parts) > 3 || configured && len(parts) > 2 {
		return nil, fmt.Errorf("%s%.100s: %s", Prefix, name, syntax)
	}
	switch at := strings.LastIndexByte(config, '/'); {
	case at > 0:
		return []selection{{dataset, config[:at], config[at+1:]}, {dataset, config, ""}}, nil
	case configured:
		return []selection{{dataset, config, ""}}, nil
	case len(parts) == 3:
		return []selection{{name: parts[0] + "/" + parts[1], split: parts[2]}}, nil
	case len(parts) == 2:
		return []selection{{name: dataset}, {name: parts[0], split: parts[1]}}, nil
	}
	return []selection{{name: dataset}}, nil
}

// cacheFolder returns the folder that huggingface_hub uses with the same environment.
func cacheFolder() string {
	user, _ := os.UserHomeDir() // without one the cache is relative, and most likely empty
	base := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(user, ".cache"))
	home := cmp.Or(os.Getenv("HF_HOME"), filepath.Join(base, "huggingface"))
	return cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))
}

// list returns the folders in a folder, sorted; none if it cannot be read.
func list(folder string) (names []string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// files returns the files of a selection in the folder of a repository.
func (s selection) files(folder string) (files []File, err error) {
	root, err := snapshot(folder)
	if err != nil {
		return nil, err
	}
	names, err := dataFiles(root)
	if err == nil {
		names, err = s.inConfig(names)
	}
	if err == nil {
		names, err = s.inSplit(names)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		files = append(files, File{path.Join(s.name, name), filepath.Join(root, filepath.FromSlash(name))})
	}
	return files, nil
}

// snapshot returns the folder of the revision main, or of the only one.
func snapshot(folder string) (string, error) {
	const mostBytes = 1 << 10 // in the file that names a revision
	have := list(filepath.Join(folder, "snapshots"))
	main := filepath.Join(folder, "refs", "main")
	if info, err := os.Stat(main); err == nil && info.Mode().IsRegular() && info.Size() <= mostBytes { // a pipe would block
		text, _ := os.ReadFile(main)
		if name := strings.TrimSpace(string(text)); slices.Contains(have, name) {
			have = []string{name}
		}
	}
	if len(have) != 1 {
		return "", fmt.Errorf("%s has %d snapshots, and none of them is that of refs/main: download it again, or give the files of one, in its folder snapshots", folder, len(have))
	}
	return filepath.Join(folder, "snapshots", have[0]), nil
}

// extensions are those of files with data, and descriptions are JSON files about a dataset.
var (
	extensions   = []string{".parquet", ".jsonl", ".ndjson", ".json", ".arrow", ".txt", ".csv"}
	descriptions = []string{"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "config.json"}
)

// kindOf returns the extension of a file with data, without that of its compression; empty for
// others.
func kindOf(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	if kind := path.Ext(name); slices.Contains(extensions, kind) && !slices.Contains(descriptions, path.Base(name)) {
		return kind
	}
	return ""
}

// dataFiles returns the paths of the files with data below a folder, of the most frequent kind,
// sorted.
func dataFiles(root string) ([]string, error) {
	byKind := map[string][]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		if hidden && entry.IsDir() {
			return fs.SkipDir
		}
		if kind := kindOf(name); kind != "" && !hidden && !entry.IsDir() {
			byKind[kind] = append(byKind[kind], name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(byKind) == 0 {
		return nil, fmt.Errorf("%s has no Parquet, JSON, CSV, Arrow or text file: download its data too", root)
	}
	kinds := slices.SortedFunc(maps.Keys(byKind), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byKind[b]), len(byKind[a])), cmp.Compare(a, b))
	})
	return slices.Sorted(slices.Values(byKind[kinds[0]])), nil
}

// inConfig returns the files of a configuration: those in its folder, which may be in the folder
// data. Without a configuration, it returns the files that are in no configuration's folder, or
// those of the only configuration.
func (s selection) inConfig(all []string) (chosen []string, err error) {
	configs := map[string][]string{}
	for _, name := range all {
		configs[configOf(name)] = append(configs[configOf(name)], name)
		if s.config != "" && (isBelow(name, s.config) || isBelow(strings.TrimPrefix(name, "data/"), s.config)) {
			chosen = append(chosen, name)
		}
	}
	if s.config == "" {
		if chosen = configs[""]; len(chosen) == 0 && len(configs) == 1 {
			chosen = all
		}
	}
	if len(chosen) == 0 {
		delete(configs, "")
		return nil, missing("configuration", s.config, configs)
	}
	return chosen, nil
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
func (s selection) inSplit(all []string) ([]string, error) {
	splits := map[string][]string{}
	for _, name := range all {
		splits[splitOf(name)] = append(splits[splitOf(name)], name)
	}
	wanted := cmp.Or(aliases[strings.ToLower(s.split)], s.split, "train")
	if chosen := splits[wanted]; len(chosen) > 0 {
		return chosen, nil
	}
	if s.split == "" || wanted == "train" && len(splits) == 1 && splits[""] != nil {
		return all, nil
	}
	delete(splits, "")
	return nil, missing("split", s.split, splits)
}

// missing refuses a configuration or a split that is not among those of a dataset.
func missing(what, given string, have map[string][]string) error {
	names := strings.Join(slices.Sorted(maps.Keys(have)), ", ")
	switch {
	case names == "":
		return fmt.Errorf("it has no %s %q and no other: leave it out", what, given)
	case given == "":
		return fmt.Errorf("it has several %ss: give one of %s (%s)", what, names, syntax)
	}
	return fmt.Errorf("there is no %s %q: give one of %s", what, given, names)
}
