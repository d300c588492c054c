package weights

// Every tensor of a Hugging Face folder is accounted for: the model reads it, it is known to be
// computed or repeated, or the folder is refused.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/tensor"
)

// account returns an error that names the tensors that the model does not read.
func (s *Source) account() error {
	one := moe.DryMesh(mesh.Layout{World: 1, PP: 1, DPReplicate: 1, DPShard: 1, EP: 1}, 1, 0)
	d, err := moe.NewDryRun(one, s.config, moe.Unquantized(tensor.FP32), 1, ep.Options{}, s.config.Whole(), false)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, g := range d.Groups {
		for _, p := range g.Params {
			names[p.Name] = true
		}
	}
	for _, r := range d.Routings() {
		names[r.Name] = s.family != "qwen3_moe" && s.family != "deepseek_v2" // whose classes have no selection bias
	}
	var unread []string
	unused := 0
	mtp := fmt.Sprintf("model.layers.%d.", s.config.Layers)
	_, module := s.entries[mtp+"eh_proj.weight"]
	for _, t := range s.Tensors() {
		rest := strings.TrimPrefix(t.Name, mtp)
		switch {
		case names[t.Name]:
		case strings.HasSuffix(t.Name, "inv_freq"): // computed
		case s.family == v4Family && strings.HasPrefix(t.Name, "mtp."):
			unused++
		case module && rest != t.Name && s.config.MTPLayers == 0:
			unused++
		case module && rest != t.Name && s.repeats(t, mtpShares[rest]):
		default:
			unread = append(unread, t.Name)
		}
	}
	if n := len(unread); n > 0 {
		return fmt.Errorf("%s: %s describes a model without the tensors %.300q (%d in all): give the %s of their model, or remove those that change no result",
			s.path, configName, unread[:min(n, 3)], n, configName)
	}
	if unused > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%d tensors of a multi-token prediction module are not used", unused))
	}
	return nil
}

// repeats reports whether a tensor repeats another one, by its shape and its first elements.
func (s *Source) repeats(t Tensor, other string) bool {
	n := min(t.elements(), chunk)
	a, b := make([]float32, n), make([]float32, n)
	return errors.Join(s.ReadInto(t.Name, t.Shape, 0, a), s.ReadInto(other, t.Shape, 0, b)) == nil && slices.Equal(a, b)
}
