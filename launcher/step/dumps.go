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

// openForeign reads the files of another tool, if there are any.
func (f *Folder) openForeign(files []os.DirEntry) error {
	var dumps []dump
	var refused error
	for _, file := range files {
		path := filepath.Join(f.Path, file.Name())
		if class, ok := strings.CutSuffix(file.Name(), "_debug_tree_FULL_TENSORS.json"); ok {
			f.Form = "folder of transformers' debugger"
			if err := f.openDebugger(files, class); err != nil {
				return err
			}
		}
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
	f.Form, f.Info.SummedInputs = dumperForm, true
	slices.SortFunc(dumps, func(a, b dump) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.index, b.index)) })
	return f.addDumps(dumps)
}

// addDumps gives the ranks the tensors of the first step. A name that a rank dumps again belongs to
// the next micro-batch.
func (f *Folder) addDumps(dumps []dump) error {
	first, last := dumps[0].step, dumps[len(dumps)-1].step
	if last != first {
		f.find(Finding{Module: "step", Says: fmt.Sprintf("the folder has steps %d to %d: step %d is checked", first, last, first)})
	}
	ranks := map[int64]*rank{}
	for _, d := range dumps {
		if d.step != first || d.meta["recompute_status"] == "recompute" {
			continue
		}
		r := ranks[d.rank]
		if r == nil {
			r = newRank(int(d.rank))
			r.mesh, r.coordinate = meshOf(d.meta)
			ranks[d.rank] = r
			f.ranks = append(f.ranks, r)
		}
		class, name := dumpedName(d.name)
		if layer, ok := d.meta["layer_id"].(int64); ok && class == Activations && !strings.Contains(name, ".layers.") {
			name = fmt.Sprintf("model.layers.%d.%s", layer, name)
		}
		k := f.key(class, name)
		k.name = f.routerPort(k.name, d.entry)
		for r.tensors[k].read != nil {
			k.MicroBatch++
		}
		f.Info.MicroBatches = max(f.Info.MicroBatches, k.MicroBatch+1)
		if text, ok := d.meta["dims"].(string); ok {
			names, parts, err := parseDims(text)
			if err != nil {
				return fmt.Errorf("%s: dims %.100q: %w", d.file, text, err)
			}
			r.placements[k.name] = parts
			if len(names) > 1 && len(d.dims) > 1 && names[0] == "s" && names[1] == "b" { // as Megatron has them
				d.view = d.view.swap(0, 1)
				for axis, p := range parts {
					if p.dim < 2 {
						p.dim = 1 - p.dim
					}
					parts[axis] = p
				}
			}
		}
		r.tensors[k] = d.entry
	}
	return nil
}

// meshOf returns the axes with more than one rank: of "tp_rank" and "tp_size".
func meshOf(meta map[string]any) (mesh []axis, coordinate map[string]int) {
	coordinate = map[string]int{}
	for _, tool := range []string{"megatron_parallel_info", "sglang_parallel_info"} {
		info, _ := meta[tool].(map[string]any)
		for k, value := range info {
			name, ok := strings.CutSuffix(k, "_size")
			size, _ := value.(int64)
			at, is := info[name+"_rank"].(int64)
			if ok && is && size > 1 && size < 1<<20 && at >= 0 && at < size {
				mesh = append(mesh, axis{name, int(size)})
				coordinate[name] = int(at)
			}
		}
	}
	slices.SortFunc(mesh, func(a, b axis) int { return cmp.Compare(a.name, b.name) })
	return mesh, coordinate
}

// parseDims reads the dumper's dims: "b s h[tp] # dp:=moe_dp".
func parseDims(text string) (names []string, parts placement, err error) {
	parts = placement{}
	text, _, _ = strings.Cut(text, "#")
	for i, word := range strings.Fields(text) {
		name, modifiers, _ := strings.Cut(strings.TrimSuffix(word, "]"), "[")
		names = append(names, name)
		for _, modifier := range strings.FieldsFunc(modifiers, func(r rune) bool { return r == ',' }) {
			axis, how, _ := strings.Cut(modifier, ":")
			switch {
			case axis == "cp":
				return nil, nil, errors.New("ranks along cp have parts of sequences: write a step folder, which has their positions")
			case strings.Contains(how, "partial"):
				parts[axis] = part{kind: "Partial"}
			default:
				parts[axis] = part{kind: "Shard", dim: i}
			}
		}
	}
	return names, parts, nil
}

var (
	dumpedPort = regexp.MustCompile(`^(?:(.*)\.)?(input|output)s?(?:\.(.+))?$`)
	// batchNames are the dumper's names of what a step folder has in batch.safetensors.
	batchNames = map[string]string{
		"input_ids": "input_ids", "labels": "labels", "position_ids": "position_ids", "positions": "position_ids",
		"attention_mask": "attention_mask", "cu_seqlens_q": "cu_seqlens",
	}
)

// dumpedName translates a name of another tool: "grad__non_intrusive__model.layers.0.mlp.inputs.0".
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
	if field := batchNames[cmp.Or(argument, port)]; field != "" && len(path) < 2 {
		return batchClass, field
	}
	if gradient {
		port = "grad_" + port
	}
	if !slices.Contains([]string{"", "0", "hidden_states", "x"}, argument) {
		port += "." + argument
	}
	if path == "." && port == "output.logits" {
		return Activations, "lm_head.output"
	}
	return Activations, path + port
}

var debuggerFile = regexp.MustCompile(`^(?:\.(.*))?_(inputs_args|inputs_kwargs|outputs)(?:_(.*))?\.safetensors$`)

// openDebugger reads transformers' folder: a file per tensor, CLASS.PATH_inputs_args_0.safetensors.
func (f *Folder) openDebugger(files []os.DirEntry, class string) error {
	for _, file := range files {
		rest, ok := strings.CutPrefix(file.Name(), class)
		m := debuggerFile.FindStringSubmatch(rest)
		if !ok || m == nil {
			continue
		}
		side, _, _ := strings.Cut(m[2], "_")
		rename := func(string) (Class, string) { return dumpedName(strings.Trim(m[1]+"."+side+"."+m[3], ".")) }
		if err := f.addFile(f.whole, filepath.Join(f.Path, file.Name()), rename); err != nil {
			return err
		}
	}
	return nil
}
