// Package hub finds datasets in the caches that Hugging Face's libraries keep on disk. It reads no
// network. Two caches are searched: that of huggingface_hub, which has the files of repositories,
// and that of datasets, which has Arrow files made from them.
package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
// without [Prefix]. CONFIG is a configuration or a folder of the repository, SPLIT a split or an
// alias of one. Without SPLIT it is train, or all files if no file belongs to train. Errors list
// what the cache has.
func Find(name string) ([]File, error) {
	all, err := interpretations(name)
	if err != nil {
		return nil, err
	}
	caches := findCaches()
	var failed error // the first one
	for _, s := range all {
		for _, look := range []func(selection) ([]File, error){caches.repository, caches.prepared} {
			files, err := look(s)
			if len(files) > 0 {
				return files, nil
			}
			failed = cmp.Or(failed, err)
		}
	}
	if failed != nil {
		return nil, fmt.Errorf("%s%s: %w", Prefix, name, failed)
	}
	return nil, fmt.Errorf("%s%s is not in the cache: %s", Prefix, name, caches.contents(all[0].name))
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

// caches are the folders of the two caches.
type caches struct{ hub, datasets string }

// findCaches returns the folders that Hugging Face's libraries use with the same environment.
func findCaches() caches {
	home := os.Getenv("HF_HOME")
	if home == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			user, _ := os.UserHomeDir() // without one the cache is relative, and most likely empty
			base = filepath.Join(user, ".cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	return caches{
		cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")),
		cmp.Or(os.Getenv("HF_DATASETS_CACHE"), filepath.Join(home, "datasets")),
	}
}

// repositoryPrefix begins the folders of datasets in the cache of repositories. Their names have --
// for a slash.
const repositoryPrefix = "datasets--"

// mostListed is the maximum number of datasets that an error lists.
const mostListed = 20

// contents says what the caches have, and how to add a dataset.
func (c caches) contents(missing string) string {
	var names []string
	for _, entry := range list(c.hub) {
		if name, ok := strings.CutPrefix(entry, repositoryPrefix); ok {
			names = append(names, strings.ReplaceAll(name, "--", "/"))
		}
	}
	for _, entry := range list(c.datasets) {
		names = append(names, strings.ReplaceAll(entry, "___", "/"))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	have := "no datasets"
	if n := len(names); n > 0 {
		have = strings.Join(names[:min(n, mostListed)], ", ")
		if n > mostListed {
			have += fmt.Sprintf(" and %d more", n-mostListed)
		}
	}
	return fmt.Sprintf("%s and %s have %s: set HF_HOME or HF_HUB_CACHE if the cache is elsewhere, or download it with: hf download --repo-type dataset %s",
		c.hub, c.datasets, have, missing)
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

// repository returns files of a dataset in the cache of repositories; none if it is not there.
func (c caches) repository(s selection) ([]File, error) {
	folder := filepath.Join(c.hub, repositoryPrefix+strings.ReplaceAll(s.name, "/", "--"))
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	revision, err := revision(folder)
	if err != nil {
		return nil, err
	}
	d := dataset{name: s.name, root: filepath.Join(folder, "snapshots", revision)}
	return d.selected(s)
}

// prepared returns files of a dataset in the cache of Arrow files, which are in the folder
// ORG___NAME/CONFIG/VERSION/HASH; none if it is not there.
func (c caches) prepared(s selection) ([]File, error) {
	at := slices.IndexFunc(list(c.datasets), func(entry string) bool {
		return plain(strings.ReplaceAll(entry, "___", "/")) == plain(s.name)
	})
	if at < 0 {
		return nil, nil
	}
	folder := filepath.Join(c.datasets, list(c.datasets)[at])
	configs := list(folder)
	config := s.config
	if config == "" && len(configs) == 1 {
		config = configs[0]
	}
	if !slices.Contains(configs, config) {
		return nil, fmt.Errorf("give one of its configurations: %s", strings.Join(configs, ", "))
	}
	root := newestVersion(filepath.Join(folder, config))
	if root == "" {
		return nil, fmt.Errorf("%s has no complete version: prepare it again", filepath.Join(folder, config))
	}
	d := dataset{name: s.name, root: root}
	return d.selected(selection{name: s.name, split: s.split})
}

// newestVersion returns the folder VERSION/HASH that was completed last; empty: none.
func newestVersion(config string) (newest string) {
	var time int64
	for _, version := range list(config) {
		for _, hash := range list(filepath.Join(config, version)) {
			folder := filepath.Join(config, version, hash)
			if info, err := os.Stat(filepath.Join(folder, infoFile)); err == nil && info.ModTime().UnixNano() > time {
				newest, time = folder, info.ModTime().UnixNano()
			}
		}
	}
	return newest
}

// plain returns a name without what the library changes in names of folders.
func plain(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

// mostRevision bounds the length of the file that names a revision.
const mostRevision = 1 << 10

// revision returns the snapshot of main, or the only one.
func revision(folder string) (string, error) {
	have := list(filepath.Join(folder, "snapshots"))
	main := filepath.Join(folder, "refs", "main")
	if info, err := os.Stat(main); err == nil && info.Mode().IsRegular() && info.Size() <= mostRevision { // a pipe would block
		text, _ := os.ReadFile(main)
		if name := strings.TrimSpace(string(text)); slices.Contains(have, name) {
			return name, nil
		}
	}
	switch len(have) {
	case 0:
		return "", fmt.Errorf("%s has no snapshot: download it again", folder)
	case 1:
		return have[0], nil
	}
	return "", fmt.Errorf("%s has %d snapshots, and none of them is that of refs/main: give the files of one, in its folder snapshots", folder, len(have))
}
