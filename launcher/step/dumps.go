package step

// Folders of other tools: sglang's dumper, which Megatron's users have as well, and transformers'
// debugger. Sources: sglang/srt/debug_utils/dumper.py, transformers/model_debugging_utils.py.

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const dumperForm = "folder of sglang's dumper"

// dump is one file of sglang's dumper.
type dump struct {
	entry
	name              string
	step, rank, index int64
	meta              map[string]any
}

// openDumps reads the files of the dumper, if there are any.
func (f *Folder) openDumps(files []os.DirEntry) error {
	var dumps []dump
	var refused error
	for _, file := range files {
		path := filepath.Join(f.Path, file.Name())
		if filepath.Ext(path) != ".pt" {
			continue
		}
		object, err := readTorch(path)
		d := dump{}
		d.entry, _ = object["value"].(entry)
		d.meta, _ = object["meta"].(map[string]any)
		d.name, _ = d.meta["name"].(string)
		d.step, _ = d.meta["step"].(int64)
		d.rank, _ = d.meta["rank"].(int64)
		d.index, _ = d.meta["dump_index"].(int64)
		if err == nil && (d.read == nil || d.name == "") {
			err = errors.New("it has no tensor with a name")
		}
		if err != nil {
			refused = fmt.Errorf("%s: %w", path, err)
			f.find(Finding{Module: file.Name(), Says: "this file was not read: " + err.Error()})
			continue
		}
		dumps = append(dumps, d)
	}
	if len(dumps) == 0 {
		return refused
	}
	order := func(a, b dump) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.rank, b.rank), cmp.Compare(a.index, b.index))
	}
	slices.SortFunc(dumps, order)
	f.addDumps(dumps)
	return nil
}

// addDumps adds the tensors of the first step and rank. A name that is dumped again belongs to the
// next micro-batch.
func (f *Folder) addDumps(dumps []dump) {
	f.Form = dumperForm
	for _, d := range dumps {
		if d.step != dumps[0].step || d.rank != dumps[0].rank {
			says := fmt.Sprintf("the folder has other steps or ranks too: step %d of rank %d is checked", dumps[0].step, dumps[0].rank)
			f.find(Finding{Module: "step", Says: says})
			continue
		}
		if d.meta["recompute_status"] == "recompute" {
			continue
		}
		class, name := dumpedName(d.name)
		if layer, ok := d.meta["layer_id"].(int64); ok && class == Activations && !strings.Contains(name, ".layers.") {
			name = fmt.Sprintf("model.layers.%d.%s", layer, name)
		}
		dims, _ := d.meta["dims"].(string)
		d.entry, _ = d.batchFirst(strings.Fields(dims))
		k := f.canonical(class, name, d.entry)
		for f.whole.tensors[k].read != nil {
			k.MicroBatch++
		}
		f.Info.MicroBatches = max(f.Info.MicroBatches, k.MicroBatch+1)
		f.whole.tensors[k] = d.entry
	}
}

var dumpedPort = regexp.MustCompile(`^(?:(.*)\.)?(input|output)s?(?:\.(.+))?$`)

// dumpedName translates a name of another tool: grad__non_intrusive__model.layers.0.mlp.inputs.0.
// A gradient of an input that the dumper has is of all modules that read the tensor.
func dumpedName(name string) (Class, string) {
	name, gradient := strings.CutPrefix(name, "grad__")
	if parameter, ok := strings.CutPrefix(name, "param__"); ok {
		return map[bool]Class{false: Weights, true: Gradients}[gradient], parameter
	}
	name = strings.TrimPrefix(name, "non_intrusive__")
	path, port, argument := "", name, ""
	if m := dumpedPort.FindStringSubmatch(name); m != nil {
		path, port, argument = m[1]+".", m[2], m[3]
	}
	if field := cmp.Or(argument, port); batchNames[field] != "" && len(path) < 2 {
		return Activations, field
	}
	if gradient {
		port = map[string]string{"output": "grad_output", "input": "grad_of_all_readers"}[port]
	}
	switch {
	case path == "." && argument == "logits":
		return Activations, "lm_head.output"
	case !slices.Contains([]string{"", "0", "hidden_states", "x"}, argument):
		port += "." + argument
	}
	return Activations, path + port
}

// debuggerFile is the name of a file with one tensor of transformers' debugger, such as
// CLASS.PATH_inputs_args_0.safetensors.
var debuggerFile = regexp.MustCompile(`^\w+?(?:\.(.*))?_(input|output)s(?:_args|_kwargs)?(?:_(.*))?\.safetensors$`)
