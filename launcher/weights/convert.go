package weights

// Conversion: writing a source as the folder of a Hugging Face model, which appears complete or not
// at all.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"spmoe/datasets"
	"spmoe/launcher/system"
	"spmoe/moe"
)

// Result describes what Convert has written.
type Result struct {
	Tensors int
	Bytes   int64 // of tensors
}

// companions are the files next to the weights of a Hugging Face model that are copied, if they
// exist.
var companions = []string{
	"generation_config.json", datasets.TokenizerFile, "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt", "chat_template.jinja", "README.md",
}

// mostCompanion bounds the size of one, in bytes.
const mostCompanion = 64 << 20

// Convert writes the source to the folder to, which must not exist: config.json, model.safetensors,
// and the tokenizer's files. The folder appears when it is complete, and is durable when Convert
// returns. After an error, or when ctx is cancelled, nothing is left behind.
func (s *Source) Convert(ctx context.Context, to string, o Options) (r Result, err error) {
	if err := Free(to); err != nil {
		return r, err
	}
	to = filepath.Clean(to)
	parent := filepath.Dir(to)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return r, err
	}
	temp := filepath.Join(parent, fmt.Sprintf(".%s.%016x.tmp", filepath.Base(to), rand.Uint64()))
	if err := os.Mkdir(temp, 0o777); err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	if err := s.writeConfig(temp, o); err != nil {
		return r, err
	}
	tensors, err := s.familyTensors()
	if err != nil {
		return r, err
	}
	if err := s.writeFile(ctx, filepath.Join(temp, singleName), tensors, o); err != nil {
		return r, err
	}
	r.Tensors = len(tensors)
	for _, t := range tensors {
		r.Bytes += o.bytes(t)
	}
	if err := errors.Join(system.SyncFolder(os.Open(temp)), os.Rename(temp, to)); err != nil {
		return r, err
	}
	return r, system.SyncFolder(os.Open(parent))
}

// Free returns an error if path exists: nothing is overwritten.
func Free(path string) error {
	_, err := os.Lstat(path)
	if err == nil {
		return fmt.Errorf("%s exists: give a folder that does not, or remove it", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Foreign lists what the Hugging Face library computes differently from the source's model, and has
// no setting for.
func (s *Source) Foreign() (all []string) {
	c := s.config
	family := c.HFModelType()
	if c.MoELayers() > 0 && c.ScoreFunc != moe.Sigmoid && family != "qwen3_moe" {
		class := map[string]string{"deepseek_v3": "DeepseekV3ForCausalLM", "glm4_moe": "Glm4MoeForCausalLM"}[family]
		all = append(all, fmt.Sprintf("the model's router scores by %s: transformers' %s knows %s only, its outputs will differ", c.ScoreFunc, class, moe.Sigmoid))
	}
	if c.NormEps != libraryEps && family == "deepseek_v3" {
		all = append(all, fmt.Sprintf("the model's norm_eps is %g: transformers' DeepseekV3ForCausalLM takes %g for the norms of compressed queries and keys, its outputs will differ a little", c.NormEps, libraryEps))
	}
	return all
}

// libraryEps is the epsilon of norms for which that library ignores the configuration.
const libraryEps = 1e-6

// familyTensors lists the tensors to write: all, except that a checkpoint's model of a family
// without selection biases leaves them out, if they are zero.
func (s *Source) familyTensors() ([]Tensor, error) {
	all := s.Tensors()
	if s.json != nil || s.config.HFModelType() != "qwen3_moe" {
		return all, nil
	}
	for _, t := range all {
		if !isBias(t.Name) {
			continue
		}
		bias := make([]float32, t.elements())
		if err := s.ReadInto(t.Name, t.Shape, 0, bias); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(bias, func(v float32) bool { return v != 0 }) {
			return nil, fmt.Errorf("%s: %s is not zero, and a Qwen3-MoE model has no selection bias: set model.bias_speed above 0 in its config.toml to write a GLM-4.5 model", s.path, t.Name)
		}
	}
	return slices.DeleteFunc(all, func(t Tensor) bool { return isBias(t.Name) }), nil
}

// writeConfig writes config.json and the files of the tokenizer. A Hugging Face model keeps its
// own, with another type of the weights.
func (s *Source) writeConfig(dir string, o Options) (err error) {
	text := s.json
	if text == nil {
		if text, err = s.config.MarshalHF(); err != nil {
			return err
		}
	}
	keys := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // which keeps how numbers are written
	if err := d.Decode(&keys); err != nil {
		return fmt.Errorf("%s: %w", configName, err)
	}
	delete(keys, "quantization_config")
	delete(keys, "dtype") // the newer name of torch_dtype; the library reads both
	if keys["torch_dtype"] = "bfloat16"; o.FP32 {
		keys["torch_dtype"] = "float32"
	}
	if s.json != nil {
		err = s.copyCompanions(dir)
	} else {
		err = s.writeTokenizer(dir, keys)
	}
	if err != nil {
		return err
	}
	return writeJSON(dir, configName, keys)
}

// copyCompanions copies the companions of a Hugging Face model.
func (s *Source) copyCompanions(dir string) error {
	root, err := system.OpenRoot(s.path)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range companions {
		content, err := readSmall(root, name, mostCompanion)
		if err == nil {
			err = system.WriteFile(filepath.Join(dir, name), content)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

func writeJSON(dir, name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(dir, name), append(text, '\n'))
}

// writeTokenizer writes a run's tokenizer, and sets the special tokens in the configuration. By
// default the library would take ids 0 and 1 for the beginning and the end of a text.
func (s *Source) writeTokenizer(dir string, keys map[string]any) error {
	t, err := datasets.RunTokenizer(tokenizerFolder(s.path), s.tokenizer, s.endToken)
	if err != nil {
		return err
	}
	text, err := datasets.TokenizerJSON(t)
	if err != nil {
		return err
	}
	end := t.Encode([]byte{0}) // the token between documents
	eos := end[len(end)-1]
	keys["bos_token_id"], keys["eos_token_id"] = nil, eos
	special := map[string]any{}
	if spelled, ok := spelling(text, eos); ok {
		special["eos_token"], special["pad_token"] = spelled, spelled // batches need padding
	}
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": s.config.MaxPositions}
	maps.Copy(config, special)
	return errors.Join(
		system.WriteFile(filepath.Join(dir, datasets.TokenizerFile), text),
		writeJSON(dir, "tokenizer_config.json", config),
		writeJSON(dir, "special_tokens_map.json", special),
		writeJSON(dir, "generation_config.json", map[string]any{"do_sample": true, "eos_token_id": eos, "pad_token_id": eos}),
	)
}

// spelling returns how a tokenizer.json writes a token.
func spelling(text []byte, id int32) (token string, ok bool) {
	var file struct {
		Added []struct {
			ID      int32
			Content string
		} `json:"added_tokens"`
		Model struct{ Vocab map[string]int32 }
	}
	if json.Unmarshal(text, &file) != nil {
		return "", false
	}
	for _, t := range file.Added {
		if t.ID == id {
			return t.Content, true
		}
	}
	for token, i := range file.Model.Vocab {
		if i == id {
			return token, true
		}
	}
	return "", false
}
