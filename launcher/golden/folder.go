// Package golden compares a build of spmoe with reference outputs of another implementation.
//
// A golden folder holds a Hugging Face checkpoint, the activations and gradients of one batch and,
// optionally, the losses of a short training run:
//
//	config.json, model.safetensors           the model; it may be in shards with an index
//	activations.safetensors                  input_ids, target_ids, layerN_..., logits, loss
//	gradients.safetensors                    under the checkpoint's tensor names (optional)
//	train_tokens.safetensors, train_trajectory.json   AdamW steps (optional)
package golden

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spmoe/collective/ep"
	"spmoe/internal/strictjson"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// Folder is an opened golden folder.
type Folder struct {
	Config     moe.Config
	weights    *weights.Source
	reference  *safetensors.File
	gradients  *safetensors.File // nil: none
	tokens     *safetensors.File // nil: no trajectory
	trajectory trajectory
	files      []*safetensors.File
}

// The largest reads from a folder, in bytes. Reference runs are small.
const (
	mostTrajectory = 4 << 20
	mostTokens     = 64 << 20
)

var errNoFolder = errors.New("not a golden folder (expected: config.json, model.safetensors, activations.safetensors)")

// trajectory is the content of train_trajectory.json.
type trajectory struct {
	Optimizer struct {
		Betas       [2]float64 `json:"betas"`
		Eps         float64    `json:"eps"`
		WeightDecay float64    `json:"weight_decay"`
		MaxGradNorm float64    `json:"max_grad_norm"`
	} `json:"optimizer"`
	Steps []struct {
		LR       float64 `json:"lr"`
		Loss     float64 `json:"loss"`
		GradNorm float64 `json:"grad_norm"`
	} `json:"steps"`
}

// Open reads a golden folder. Close it after use.
func Open(dir string) (*Folder, error) {
	f := &Folder{}
	if err := f.openAll(dir); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Folder) openAll(dir string) (err error) {
	if err := f.openModel(dir); err != nil {
		return err
	}
	if f.reference, err = f.open(dir, "activations.safetensors"); err != nil {
		return err
	}
	if f.gradients, err = f.optional(dir, "gradients.safetensors"); err != nil {
		return err
	}
	return f.openTrajectory(dir)
}

func (f *Folder) openModel(dir string) (err error) {
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return fmt.Errorf("%w: %w", errNoFolder, err)
	}
	f.weights, err = weights.OpenHuggingFace(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNoFolder, err)
	} else if err != nil {
		return err
	}
	f.Config = f.weights.Config()
	f.Config.BiasSpeed, f.Config.BalanceAlpha = 0, 0 // the selection bias is fixed in reference runs, and their loss is cross-entropy
	if err := f.fits(); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// fits returns an error if the model does not fit into this machine's memory.
func (f *Folder) fits() error {
	each := int64(4 + 4 + optim.BytesPerWeight(optim.AdamW{})) // bytes per parameter: FP32 weight, gradient and optimizer state
	need := f.Config.Count().Total
	if free := system.ReadMemory().Available; free > 0 && need > free/each {
		return fmt.Errorf("a model of %d parameters needs %s of memory, %s are available", need, system.Bytes(each*need), system.Bytes(free))
	}
	return nil
}

func (f *Folder) openTrajectory(dir string) error {
	path := filepath.Join(dir, "train_trajectory.json")
	data, err := system.ReadFile(path, mostTrajectory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := strictjson.Unmarshal(data, &f.trajectory); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(f.trajectory.Steps) == 0 {
		return fmt.Errorf("%s has no steps: give some, or remove it", path)
	}
	f.tokens, err = f.open(dir, "train_tokens.safetensors")
	return err
}

func (f *Folder) open(dir, name string) (*safetensors.File, error) {
	file, err := safetensors.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errNoFolder, err)
	} else if err != nil {
		return nil, err
	}
	f.files = append(f.files, file)
	return file, nil
}

func (f *Folder) optional(dir, name string) (*safetensors.File, error) {
	file, err := f.open(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return file, err
}

// Close releases the files.
func (f *Folder) Close() {
	if f.weights != nil {
		f.weights.Close()
	}
	for _, file := range f.files {
		file.Close()
	}
}

// Ranks returns an error if n ranks cannot run the model.
func (f *Folder) Ranks(n int) error {
	if n < 1 {
		return fmt.Errorf("-np is %d: give 1 or more ranks", n)
	}
	if f.Config.MoELayers() == 0 {
		return nil
	}
	if _, err := ep.NewLayout(f.Config.Experts, n); err != nil {
		return fmt.Errorf("-np %d: %s", n, strings.TrimPrefix(err.Error(), "ep: "))
	}
	return nil
}

// ids returns an int32 tensor and its shape.
func ids(file *safetensors.File, name string) (values []int32, shape []int, err error) {
	info, ok := file.Info(name)
	if !ok || len(info.Shape) == 0 {
		return nil, nil, fmt.Errorf("%s is missing or has no dimensions", name)
	}
	if info.Size > mostTokens {
		return nil, nil, fmt.Errorf("%s has %d bytes of tokens: expected at most %d", name, info.Size, mostTokens)
	}
	values, err = file.Int32s(name)
	return values, info.Shape, err
}

// vocabulary returns an error if the model cannot embed a token id.
func (f *Folder) vocabulary(name string, values []int32) error {
	for i, id := range values {
		if id < 0 || int(id) >= f.Config.Vocab {
			return fmt.Errorf("%s: token %d at position %d is outside the vocabulary of %d", name, id, i, f.Config.Vocab)
		}
	}
	return nil
}
