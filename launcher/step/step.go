// Package step reads one training step of another program from a folder: the model, the batch, and
// the activations and gradients of the step. It brings all forms of such a folder to one set of
// names, those of Hugging Face's modules and parameters:
//
//   - a step folder: config.json, step.json, and safetensors files with the weights, the batch,
//     activations, gradients, and perhaps the weights after the step;
//   - the same from a parallel run, in folders rank-R with a placement.json, which it joins;
//   - the .pt files of sglang's dumper or the folder of transformers' debugger, and a config.json;
//   - a golden folder, with activations named layerN_attention.
//
// Nothing in a folder is trusted or executed. Tensors are read when they are asked for.
package step

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/moe/reference"
)

// ErrAbsent says that the folder has no tensor of that name.
var ErrAbsent = errors.New("not in the folder")

// Class says what a tensor is. The classes begin the names of the files that hold them.
type Class string

// The classes.
const (
	Weights     Class = "model"
	Gradients   Class = "gradients"
	Activations Class = "activations"
	After       Class = "after" // weights after the step
	batchClass  Class = "batch"
)

// Folder is an opened folder.
type Folder struct {
	Path, Form string // Form: "step folder", for people
	Model      *reference.Config
	Info       Info
	Ranks      []*Rank   // of a parallel run
	Findings   []Finding // some show only when tensors are read

	whole  *Rank       // what the folder itself has, for all ranks
	tokens []int       // per micro-batch
	groups [][][]*Rank // per micro-batch: ranks with the same tokens
	closes []func() error
	read   map[key]bool
	joined map[key]entry // what was joined last
}

// Value is a tensor in memory. Integers and booleans are numbers too.
type Value struct {
	reference.Tensor
	DType string // as safetensors names it, such as BF16
}

// Finding is what the reader sees without any computation: replicas that differ, recomputed
// activations that differ, values that are not finite, tensors that do not fit.
type Finding struct {
	Module string // or parameter
	Says   string // a sentence
	Wrong  bool   // else it is worth knowing
}

// Info is step.json: what the program says of the step. The zero value of a field is "not stated",
// except for counts and the loss scale, which are 1.
type Info struct {
	Format        string      `json:"format"`
	Autocast      string      `json:"autocast"` // "bfloat16"
	Matmul        string      `json:"float32_matmul_precision"`
	Reduction     string      `json:"reduction"` // "mean", "sum" or "sequence"
	LossScale     float64     `json:"loss_scale"`
	MicroBatches  int         `json:"micro_batches"`
	Ranks         int         `json:"ranks"`
	LabelsShifted bool        `json:"labels_shifted"`
	Auxiliary     []Auxiliary `json:"auxiliary"`
	Layout        any         `json:"layout"`                // of fused experts, text in any form: "gate_up_proj [E, 2I, D]"
	Silent        []string    `json:"silent"`                // modules whose hooks never ran
	Frozen        []string    `json:"frozen"`                // parameters without requires_grad
	Weights       string      `json:"weights"`               // where they are, if not in the folder
	Differs       []string    `json:"recomputation_differs"` // modules
	Accumulation  string      `json:"gradient_accumulation"` // its dtype: "float32"
	Device        string      `json:"device"`                // "NVIDIA H200"
	FP8           string      `json:"fp8"`                   // the recipe of products of 8 bits, and what it covers: "mxfp8 experts"
}

// otherFacts are keys of step.json that say nothing about right and wrong.
const otherFacts = "framework torch attention compile loss loss_value optimizer dtypes non_tensors recomputed grad_dtype"

// Auxiliary is an auxiliary loss of the routers, or of the indexers.
type Auxiliary struct {
	Kind        string  `json:"kind"` // "load_balancing", "sequence" or "index_kl"
	Coefficient float64 `json:"coefficient"`
	Stage       string  `json:"stage"` // of index_kl: "sparse" (also ""), or "warmup" with dense attention
}

const (
	mostConfig = 1 << 20
	mostJSON   = 256 << 20 // step.json names every module, placement.json every token
)

var rankFolder = regexp.MustCompile(`^rank-(\d{1,6})$`)

// Open opens a folder. Close it after use.
func Open(dir string) (*Folder, error) {
	f := &Folder{Path: dir, Form: "step folder", read: map[key]bool{}, joined: map[key]entry{}, whole: newRank(0, dir)}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Folder) open() error {
	if info, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no such folder: %s", expected)
	} else if err == nil && !info.IsDir() {
		return fmt.Errorf("it is a file: %s", expected)
	}
	files, err := system.ReadDir(f.Path)
	if err != nil {
		return err
	}
	var inside []string // folders that may be meant
	for _, file := range files {
		if _, err := os.Lstat(filepath.Join(f.Path, file.Name(), "config.json")); err == nil {
			inside = append(inside, file.Name())
		}
		if m := rankFolder.FindStringSubmatch(file.Name()); m != nil {
			number, _ := strconv.Atoi(m[1])
			f.Ranks = append(f.Ranks, newRank(number, filepath.Join(f.Path, file.Name())))
		}
	}
	facts := f.Path // config.json and step.json are here, or with the first rank
	if _, err := os.Lstat(filepath.Join(facts, "config.json")); err != nil && len(f.Ranks) > 0 {
		facts = f.Ranks[0].folder
	}
	config, err := system.ReadFile(filepath.Join(facts, "config.json"), mostConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(inside) > 0:
		return fmt.Errorf("it has no config.json, but folders in it have one: check %s", filepath.Join(f.Path, inside[0]))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("it has no config.json: %s", expected)
	case err != nil:
		return err
	}
	if f.Model, err = reference.ReadConfig(config); err != nil {
		return err
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
		err := f.addFolder(r, r.folder, Weights, Gradients, Activations, After, batchClass)
		if err == nil && r != f.whole {
			err = f.readPlacement(r)
		}
		if err != nil {
			return err
		}
	}
	if err := f.placeBatch(); err != nil {
		return err
	}
	if len(f.Model.UnreadKeys) > 0 {
		f.find("config.json", fmt.Sprintf("its keys %s were not read", f.Model.UnreadKeys), false)
	}
	projection := "eh_proj"
	if f.Model.Streams > 0 {
		projection = "e_proj"
	}
	if _, ok := f.DType(Weights, fmt.Sprintf("model.layers.%d.%s.weight", f.Model.Layers, projection), Repeat{}); !ok {
		f.Model.MTPLayers = 0 // transformers drops these layers
	}
	return nil
}

// expected says what a folder should hold, and how to make one.
const expected = `expected a folder with one training step, with
  config.json                 the model's, in Hugging Face's form
  model*.safetensors          the weights before the step
  batch.safetensors           input_ids [batch, seq], and labels
  activations*.safetensors    what went into modules and came out, and
  gradients*.safetensors      the gradients of the weights: either, or both
python/step.py writes it. Copy it next to your program, and add three lines:
  recorder = step.Recorder(model, "step")                           # before the forward pass
  loss = model(input_ids=ids, labels=labels).loss; loss.backward()  # your step, as it is
  recorder.save(loss=loss)                                          # before clipping and optimizer.step()`

// Usable returns an error if the weights or the batch are missing. A step that is to be judged also
// needs activations or gradients.
func (f *Folder) Usable(judged bool) error {
	weights, known := f.Names(Weights, false), false
	for _, name := range weights {
		dtype, _ := f.DType(Weights, name, Repeat{})
		if strings.HasPrefix(dtype, "F8") || strings.HasPrefix(dtype, "F4") {
			return fmt.Errorf("the weight %s is %s, and scales of weights are not read: save the weights that the optimizer updates, in BF16 or FP32", name, dtype)
		}
		_, own := f.Model.ParamDims(name)
		known = known || own || strings.HasPrefix(name, "model.layers.")
	}
	switch {
	case len(weights) == 0:
		return fmt.Errorf("it has no weights: %s", expected)
	case !known:
		return fmt.Errorf("its weights, such as %s, have other names than those of Hugging Face, such as model.embed_tokens.weight", weights[0])
	case judged && len(f.keys(Activations)) == 0 && len(f.keys(Gradients)) == 0:
		return fmt.Errorf("it has neither activations nor gradients, as a checkpoint: %s", expected)
	}
	_, err := f.Batch(f.Repeats()[0])
	if errors.Is(err, ErrAbsent) {
		err = fmt.Errorf("%w: %s", err, expected)
	}
	return err
}

func (f *Folder) all() []*Rank { return append([]*Rank{f.whole}, f.Ranks...) }

// addFolder gives a rank the tensors of a folder. A file's name begins with its class, unless
// another tool wrote it.
func (f *Folder) addFolder(r *Rank, dir string, classes ...Class) error {
	files, err := system.ReadDir(dir)
	if err != nil {
		return err
	}
	var dumps []dump
	for _, file := range files {
		name, path := file.Name(), filepath.Join(dir, file.Name())
		at := slices.IndexFunc(classes, func(c Class) bool { return strings.HasPrefix(name, string(c)) })
		switch {
		case filepath.Ext(name) == ".pt":
			if d, err := readDump(path); err != nil {
				f.find(name, "this file was not read: "+err.Error(), false)
			} else {
				dumps = append(dumps, d)
			}
			continue
		case filepath.Ext(name) != ".safetensors" || name == "activations64.safetensors": // which golden folders have besides
			continue
		case at < 0 && !strings.Contains(name, "puts"):
			continue
		}
		opened, err := safetensors.Open(path)
		if err != nil {
			return fmt.Errorf("%w; was this file written and copied to its end?", err)
		}
		f.closes = append(f.closes, opened.Close)
		for _, info := range opened.Tensors() {
			read := func(p []byte, off int64) error { return opened.ReadAt(info, p, off) }
			e := entry{view: rowMajor(info.Shape), file: path, dtype: info.DType, read: read}
			full := ""
			if at >= 0 {
				full = string(classes[at]) + "/" + info.Name
			} else {
				f.Form = "folder of transformers' debugger"
				full = "debugger/" + name
			}
			k := f.canonical(full, e)
			if other, ok := r.tensors[k]; ok {
				return fmt.Errorf("%s has %s as %s, which %s has too", path, k, info.Name, other.file)
			}
			r.tensors[k] = e
		}
	}
	f.addDumps(r, dumps)
	return nil
}

// dump is one file of sglang's dumper, which Megatron's users have as well.
type dump struct {
	entry
	name, dims        string
	step, rank, index int64
	layer             int64 // -1: none
	again             bool  // it is of a recomputation
}

func readDump(path string) (d dump, err error) {
	object, err := readTorch(path)
	if err != nil {
		return d, err
	}
	d.entry, _ = object["value"].(entry)
	meta, _ := object["meta"].(map[string]any)
	d.name, _ = meta["name"].(string)
	d.dims, _ = meta["dims"].(string)
	d.again = meta["recompute_status"] == "recompute"
	d.layer = -1
	for name, to := range map[string]*int64{"step": &d.step, "rank": &d.rank, "dump_index": &d.index, "layer_id": &d.layer} {
		if n, ok := meta[name].(int64); ok {
			*to = n
		}
	}
	if d.read == nil || d.name == "" {
		return d, errors.New("it has no tensor with a name")
	}
	return d, nil
}

// addDumps adds the tensors of the first step and rank. A name that is dumped again belongs to the
// next micro-batch.
func (f *Folder) addDumps(r *Rank, dumps []dump) {
	slices.SortFunc(dumps, func(a, b dump) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.rank, b.rank), cmp.Compare(a.index, b.index))
	})
	for _, d := range dumps {
		f.Form = dumperForm
		if d.step != dumps[0].step || d.rank != dumps[0].rank {
			f.find("step", fmt.Sprintf("the folder has other steps or ranks too: step %d of rank %d is checked", dumps[0].step, dumps[0].rank), false)
			continue
		}
		if d.again {
			continue
		}
		d.entry, _ = d.batchFirst(strings.Fields(d.dims))
		k := f.canonical("dumper/"+d.name, d.entry)
		if k.class == Activations && d.layer >= 0 && !strings.Contains(k.name, ".layers.") {
			k.name = fmt.Sprintf("model.layers.%d.%s", d.layer, k.name)
		}
		for r.tensors[k].read != nil {
			k.MicroBatch++
		}
		f.Info.MicroBatches = max(f.Info.MicroBatches, k.MicroBatch+1)
		r.tensors[k] = d.entry
	}
}

const dumperForm = "folder of sglang's dumper"

// readInfo reads step.json, if it is there. A fact of another type than expected is left out.
func (f *Folder) readInfo(dir string) error {
	f.Info.LossScale, f.Info.MicroBatches = 1, 1
	path := filepath.Join(dir, "step.json")
	text, err := system.ReadFile(path, mostJSON)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	keys := map[string]json.RawMessage{}
	if err = errors.Join(err, strictjson.Unmarshal(text, &keys)); err == nil {
		err = json.Unmarshal(text, &f.Info)
	}
	if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		f.find("step.json", fmt.Sprintf("%s is a %s and was not read: expected %s", other.Field, other.Value, other.Type), false)
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.Info.MicroBatches = max(f.Info.MicroBatches, 1)
	if f.Info.Format != "step-1" && f.Info.Format != "" || f.Info.MicroBatches > 1<<12 {
		return fmt.Errorf("%s: format is %.60q with %d micro-batches: expected step-1, and at most %d", path, f.Info.Format, f.Info.MicroBatches, 1<<12)
	}
	for i := range reflect.TypeFor[Info]().NumField() {
		delete(keys, reflect.TypeFor[Info]().Field(i).Tag.Get("json"))
	}
	for _, name := range strings.Fields(otherFacts) {
		delete(keys, name)
	}
	if len(keys) > 0 {
		f.find("step.json", fmt.Sprintf("its keys %s were not read", slices.Sorted(maps.Keys(keys))), false)
	}
	for _, name := range f.Info.Differs {
		f.find(name, "its recomputed forward pass differs from the first: gradients belong to other activations", true)
	}
	return nil
}

func (f *Folder) find(module, says string, wrong bool) {
	if finding := (Finding{module, says, wrong}); !slices.Contains(f.Findings, finding) {
		f.Findings = append(f.Findings, finding)
	}
}

// Close closes all files.
func (f *Folder) Close() (err error) {
	for _, close := range f.closes {
		err = errors.Join(err, close())
	}
	return err
}
