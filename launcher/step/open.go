package step

// Opening a folder: which files it has, and what their tensors are called.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/moe/reference"
)

const (
	mostConfig = 1 << 20
	mostFiles  = 1 << 17
)

var rankFolder = regexp.MustCompile(`^rank-(\d{1,6})$`)

// Open opens a folder. Close it after use.
func Open(dir string) (*Folder, error) {
	f := &Folder{Path: dir, Form: "step folder", read: map[key]bool{}, joined: map[key]entry{}}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Folder) open() error {
	files, err := system.ReadDir(f.Path)
	if err != nil || len(files) > mostFiles {
		return cmp.Or(err, fmt.Errorf("%s has %d files: expected at most %d", f.Path, len(files), mostFiles))
	}
	for _, file := range files {
		if m := rankFolder.FindStringSubmatch(file.Name()); m != nil {
			number, _ := strconv.Atoi(m[1])
			f.Ranks = append(f.Ranks, newRank(number, filepath.Join(f.Path, file.Name())))
		}
	}
	f.whole = newRank(0, f.Path)
	facts := f.Path // config.json and step.json are here, or with the first rank
	if _, err := os.Lstat(filepath.Join(facts, "config.json")); err != nil && len(f.Ranks) > 0 {
		facts = f.Ranks[0].folder
	}
	if f.Config, err = system.ReadFile(filepath.Join(facts, "config.json"), mostConfig); err != nil {
		return fmt.Errorf("%w (a folder needs the model's config.json, in Hugging Face's form)", err)
	}
	if f.Model, err = reference.ReadConfig(f.Config); err != nil {
		return fmt.Errorf("%s: %w", facts, err)
	}
	if err := f.readInfo(facts); err != nil {
		return err
	}
	if from := f.Info.Weights; from != "" {
		if !filepath.IsAbs(from) {
			from = filepath.Join(facts, from)
		}
		if err := f.addFolder(f.whole, from, Weights); err != nil {
			return fmt.Errorf("weights of step.json: %w", err)
		}
	}
	for _, r := range f.all() {
		if err := f.addFolder(r, r.folder, Weights, Gradients, Activations, After, batchClass); err != nil {
			return err
		}
		if r == f.whole {
			continue
		}
		text, err := system.ReadFile(filepath.Join(r.folder, "placement.json"), mostJSON)
		if err == nil {
			err = f.readPlacement(text, r)
		}
		if err != nil {
			return fmt.Errorf("%s: placement.json: %w", r.folder, err)
		}
	}
	if err := f.openDumps(files); err != nil {
		return err
	}
	for _, r := range f.all() {
		f.splitBatch(r)
	}
	for micro := range f.Info.MicroBatches {
		if err := f.placeTokens(micro); err != nil {
			return err
		}
	}
	if _, ok := f.DType(Weights, fmt.Sprintf("model.layers.%d.eh_proj.weight", f.Model.Layers)); !ok {
		f.Model.MTPLayers = 0 // transformers drops these layers
	}
	return nil
}

func newRank(number int, folder string) *Rank {
	return &Rank{Number: number, folder: folder, split: 1, placements: map[string]placement{}, tensors: map[key]entry{}}
}

func (f *Folder) all() []*Rank { return append([]*Rank{f.whole}, f.Ranks...) }

// addFolder gives a rank the tensors of a folder. A file's name begins with its class.
func (f *Folder) addFolder(r *Rank, dir string, classes ...Class) error {
	files, err := system.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := file.Name()
		at := slices.IndexFunc(classes, func(c Class) bool { return strings.HasPrefix(name, string(c)) })
		debugger := debuggerFile.FindStringSubmatch(name)
		rename := func(name string) (Class, string) { return classes[at], name }
		switch {
		case filepath.Ext(name) != ".safetensors" || name == "activations64.safetensors": // which golden folders have besides
			continue
		case at < 0 && debugger == nil:
			continue
		case at < 0:
			f.Form = "folder of transformers' debugger"
			rename = func(string) (Class, string) { return dumpedName(strings.Trim(strings.Join(debugger[1:], "."), ".")) }
		}
		if err := f.addFile(r, filepath.Join(dir, name), rename); err != nil {
			return err
		}
	}
	return nil
}

// addFile gives a rank the tensors of a file, under the names that rename returns.
func (f *Folder) addFile(r *Rank, path string, rename func(name string) (Class, string)) error {
	file, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	f.closes = append(f.closes, file.Close)
	for _, info := range file.Tensors() {
		read := func(p []byte, off int64) error { return file.ReadAt(info, p, off) }
		e := entry{view: rowMajor(info.Shape), file: path, dtype: info.DType, read: read}
		class, name := rename(info.Name)
		k := f.canonical(class, name, e)
		if other, ok := r.tensors[k]; ok {
			return fmt.Errorf("%s has %s as %s, which %s has too", path, k, name, other.file)
		}
		r.tensors[k] = e
	}
	return nil
}
