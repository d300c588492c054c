package step

// Names: wrappers' prefixes are cut, and other programs' names become Hugging Face's.

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// key names a tensor of a rank.
type key struct {
	class Class
	name  string
	Repeat
}

func (k key) String() string { return k.name + k.Suffix() }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.MicroBatch, other.MicroBatch), cmp.Compare(k.Call, other.Call), cmp.Compare(k.name, other.name))
}

// Suffix returns what Activation takes after a name for this repeat: "@mb2.call1". It is empty for
// the first or only one.
func (r Repeat) Suffix() string {
	if r == (Repeat{}) {
		return ""
	}
	return fmt.Sprintf("@mb%d.call%d", r.MicroBatch, r.Call)
}

var (
	repeated = regexp.MustCompile(`@(?:mb(\d{1,9}))?\.?(?:call(\d{1,9}))?`)
	wrappers = regexp.MustCompile(`\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.`)
	// TorchTitan appends the letters of a tensor's dimensions: w1_EFD.
	dimensionLetters = regexp.MustCompile(`\b(w[123]|expert_bias)_[A-Z]+\b`)
	goldenLayer      = regexp.MustCompile(`^layer(\d+)_`)
)

//go:embed names.txt
var nameTable string

// otherNames replaces the names of names.txt in a name that begins with "^." and ends with ".".
var otherNames = func() *strings.Replacer {
	var pairs []string
	for line := range strings.Lines(nameTable) {
		if fields := strings.Fields(line); len(fields) == 2 {
			other, top := strings.CutPrefix(fields[0], "^")
			pairs = append(pairs, map[bool]string{true: "^"}[top]+"."+other+".", "."+fields[1]+".")
		}
	}
	return strings.NewReplacer(pairs...)
}()

// key returns the name of a tensor in Hugging Face's form, and its repeat.
func (f *Folder) key(class Class, name string) key {
	k := key{class: class}
	if at := repeated.FindStringSubmatchIndex(name); at != nil {
		k.MicroBatch, _ = strconv.Atoi(name[max(at[2], 0):max(at[3], 0)])
		k.Call, _ = strconv.Atoi(name[max(at[4], 0):max(at[5], 0)])
		name = name[:at[0]] + name[at[1]:]
	}
	name = dimensionLetters.ReplaceAllString(wrappers.ReplaceAllString(name, ""), "$1")
	name = goldenLayer.ReplaceAllString(name, "model.layers.$1.golden.")
	if f.Model.KVRank > 0 { // TorchTitan calls this norm so in all kinds of attention
		name = strings.Replace(name, ".attention.q_norm.", ".attention.q_a_layernorm.", 1)
	}
	k.name = strings.Trim(otherNames.Replace("^."+name+"."), "^.")
	return k
}

// batchNames are names of what a step folder has in batch.safetensors.
var batchNames = map[string]string{
	"input_ids": "input_ids", "labels": "labels", "target_ids": "labels", "position_ids": "position_ids", "positions": "position_ids",
	"attention_mask": "attention_mask", "cu_seqlens_q": "cu_seqlens",
}

// canonical is key for a tensor of a file: other tools have the batch among activations, and call
// what a router returns by its place. Its form says what it is, because versions of libraries order
// it differently: integers are indices, a row of chosen experts has weights, and one of all experts
// logits.
func (f *Folder) canonical(class Class, name string, e entry) key {
	if field := batchNames[name]; field != "" && class == Activations {
		class = batchClass
		if name == "target_ids" {
			f.Form, f.Info.LabelsShifted, f.Info.Reduction = "folder of reference outputs", true, "mean"
		}
		name = field
	}
	k := f.key(class, name)
	path, port, ok := strings.Cut(k.name, ".mlp.gate.")
	if !ok || len(e.dims) == 0 || !strings.HasPrefix(strings.TrimPrefix(port, "grad_"), "output") {
		return k
	}
	field := map[int]string{f.Model.TopK: "weights", f.Model.Experts: "logits"}[e.dims[len(e.dims)-1]]
	switch {
	case strings.ContainsAny(e.dtype[:1], "IU"):
		field = "indices"
	case field == "":
		return k
	case strings.HasPrefix(port, "grad_"):
		field += ".grad"
	}
	k.name = path + ".mlp.gate." + field
	return k
}
