package step

// Opening a folder: which files it has, and the names of their tensors.

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
	f := &Folder{Path: dir, Form: "step folder", read: map[key]bool{}, joined: map[key]Value{}}
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
	facts, folders := f.Path, []string{} // facts has config.json and step.json
	for _, file := range files {
		if rankFolder.MatchString(file.Name()) {
			folders = append(folders, filepath.Join(f.Path, file.Name()))
		}
	}
	if _, err := os.Lstat(filepath.Join(facts, "config.json")); err != nil && len(folders) > 0 {
		facts = folders[0]
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
	f.whole = newRank(0)
	if err := f.addFolder(f.whole, f.Path, Weights, Gradients, Activations, After, batchClass); err != nil {
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
	for _, folder := range folders {
		number, _ := strconv.Atoi(rankFolder.FindStringSubmatch(filepath.Base(folder))[1])
		r := newRank(number)
		text, err := system.ReadFile(filepath.Join(folder, "placement.json"), mostJSON)
		if err == nil {
			err = f.readPlacement(text, r)
		}
		if err == nil {
			err = f.addFolder(r, folder, Weights, Gradients, Activations, After, batchClass)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		f.ranks = append(f.ranks, r)
	}
	if err := f.openForeign(files); err != nil {
		return err
	}
	slices.SortFunc(f.ranks, func(a, b *rank) int { return a.number - b.number })
	for _, r := range f.all() {
		f.splitBatch(r)
	}
	for micro := range f.Info.MicroBatches {
		if err := f.placeTokens(micro); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	f.survey()
	return nil
}

func (f *Folder) all() []*rank { return append([]*rank{f.whole}, f.ranks...) }

func newRank(number int) *rank {
	return &rank{number: number, placements: map[string]placement{}, tensors: map[key]entry{}}
}

// addFolder gives a rank the tensors of a folder. A file's name begins with its class.
func (f *Folder) addFolder(r *rank, dir string, classes ...Class) error {
	files, err := system.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := file.Name()
		at := slices.IndexFunc(classes, func(c Class) bool { return strings.HasPrefix(name, string(c)) })
		if at < 0 || filepath.Ext(name) != ".safetensors" || name == "activations64.safetensors" { // which golden folders have besides
			continue
		}
		as := func(name string) (Class, string) { return classes[at], name }
		if err := f.addFile(r, filepath.Join(dir, name), as); err != nil {
			return err
		}
	}
	return nil
}

// addFile gives a rank the tensors of a file, under the names that rename returns.
func (f *Folder) addFile(r *rank, path string, rename func(name string) (Class, string)) error {
	file, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	f.closes = append(f.closes, file.Close)
	for _, info := range file.Tensors() {
		read := func(p []byte, off int64) error { return file.ReadAt(info, p, off) }
		class, name := rename(info.Name)
		if err := f.add(r, class, name, entry{rowMajor(info.Shape), path, info.DType, read}); err != nil {
			return err
		}
	}
	return nil
}

// goldenPorts are the activations of golden folders, named layer0_attention, as module paths.
var goldenPorts = map[string]string{
	"attention": "self_attn.output", "mlp_in": "mlp.input", "mlp": "mlp.output", "out": "output",
	"router_logits": "mlp.gate.logits", "topk_weight": "mlp.gate.weights", "topk_index": "mlp.gate.indices",
	"gate_0": "mlp.gate.logits", "gate_1": "mlp.gate.weights", "gate_2": "mlp.gate.indices",
}

// add gives a rank a tensor under its canonical name.
func (f *Folder) add(r *rank, class Class, name string, e entry) error {
	layer, rest, _ := strings.Cut(name, "_")
	switch port := goldenPorts[rest]; {
	case class != Activations:
	case port != "" && strings.HasPrefix(layer, "layer"):
		name = "model.layers." + strings.TrimPrefix(layer, "layer") + "." + port
	case name == "logits":
		name = "lm_head.output"
	case name == "input_ids":
		class = batchClass
	case name == "target_ids":
		class, name, f.Form = batchClass, "labels", "golden folder"
		f.Info.LabelsShifted, f.Info.Reduction = true, "mean"
	}
	k := f.key(class, name)
	k.name = f.routerPort(k.name, e)
	if other, ok := r.tensors[k]; ok {
		return fmt.Errorf("%s has %s as %s, which %s has too", e.file, k, name, other.file)
	}
	r.tensors[k] = e
	return nil
}

// routerPort names what a router returns by its form: integers are indices, a row of chosen experts
// has weights, and one of all experts logits. Versions of libraries order them differently.
func (f *Folder) routerPort(name string, e entry) string {
	path, port, ok := strings.Cut(name, ".mlp.gate.")
	gradient := strings.HasPrefix(port, "grad_output")
	if !ok || !gradient && !strings.HasPrefix(port, "output") || len(e.dims) == 0 {
		return name
	}
	field := map[int]string{f.Model.TopK: "weights", f.Model.Experts: "logits"}[e.dims[len(e.dims)-1]]
	switch {
	case strings.ContainsAny(e.dtype[:1], "IU"):
		field = "indices"
	case field == "":
		return name
	case gradient:
		field += ".grad"
	}
	return path + ".mlp.gate." + field
}

// survey notes modules without weights or tensors, and recomputations that differ.
func (f *Folder) survey() {
	lacks := func(name string) bool { _, ok := f.DType(Weights, name); return !ok }
	if lacks(fmt.Sprintf("model.layers.%d.eh_proj.weight", f.Model.Layers)) {
		f.Model.MTPLayers = 0 // transformers drops these layers
	}
	for _, m := range f.Model.Modules() {
		all := slices.Concat(m.Params, m.Buffers)
		if missing := slices.DeleteFunc(all, func(name string) bool { return !lacks(name) }); len(missing) > 0 && len(m.Children) == 0 {
			f.find(Finding{Module: m.Path, Says: fmt.Sprintf("the folder lacks %d of its weights, the first is %s", len(missing), missing[0])})
		}
		is := func(name string) bool { return f.key(Activations, name).name == m.Path }
		if slices.ContainsFunc(f.Info.Silent, is) {
			f.find(Finding{Module: m.Path, Says: "its hooks never ran (compiled, fused or unused): it has no tensors"})
		}
		if slices.ContainsFunc(f.Info.Differs, is) {
			f.find(Finding{Module: m.Path, Wrong: true, Says: "its recomputed forward pass differs from the first: gradients belong to other activations"})
		}
	}
}
