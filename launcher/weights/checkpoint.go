package weights

// Weights in this program's own checkpoints: FP32 master weights, in the pieces that ranks have
// saved.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// The prefixes of the names of a checkpoint's tensors: a master weight, followed by the parameter's
// name, or a router's selection bias.
const (
	MasterPrefix = optim.MasterName + "/"
	BiasPrefix   = "router_bias/"
)

// weightName returns the Hugging Face name of the weight in a checkpoint's tensor. ok is false for
// the state of the optimizer.
func weightName(name string) (weight string, ok bool) {
	if weight, ok = strings.CutPrefix(name, MasterPrefix); ok {
		return weight, true
	}
	return strings.CutPrefix(name, BiasPrefix)
}

func (s *Source) openCheckpoint() error {
	step, err := newest(s.path)
	if err != nil {
		return err
	}
	r, err := checkpoint.Open(step)
	if err != nil {
		return err
	}
	s.path, s.opened = step, append(s.opened, r)
	run, err := parseConfig(r.ConfigTOML())
	if err != nil {
		return fmt.Errorf("%s: config.toml: %w", step, err)
	}
	s.config, s.tokenizer, s.endToken = run.Model, run.Tokenizer, run.EndToken
	for name, shape := range r.Tensors() {
		if weight, ok := weightName(name); ok {
			s.entries[weight] = entry{Tensor{weight, safetensors.F32, shape}, func(dst []float32, offset int64) error {
				return r.ReadInto(checkpoint.Piece{
					Name:   name,
					Shape:  shape,
					Offset: offset,
					Data:   dst,
				})
			}}
		}
	}
	s.shareWithMTP()
	return nil
}

// mtpShares are the parts of an MTP module that are the model's, under both names.
var mtpShares = map[string]string{"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.head.weight": "lm_head.weight"}

// shareWithMTP adds what the MTP module shares with the model under its own names, too, as DeepSeek
// publishes it.
func (s *Source) shareWithMTP() {
	if s.config.MTPLayers == 0 {
		return
	}
	prefix := fmt.Sprintf("model.layers.%d.", s.config.Layers)
	for own, shared := range mtpShares {
		if e, ok := s.entries[shared]; ok {
			e.Name = prefix + own
			s.entries[e.Name] = e
		}
	}
}

// newest returns the newest checkpoint of a run. If path is a checkpoint, it returns path.
func newest(path string) (string, error) {
	step, err := checkpoint.Newest(path)
	if errors.Is(err, checkpoint.ErrNone) {
		return "", fmt.Errorf("%s holds no weights: %s: %w", path, expected, err)
	}
	return step, err
}

// runConfig is the part of a run's configuration that concerns its weights.
type runConfig struct {
	Flavor    string `toml:"flavor"`
	Tokenizer string `toml:"tokenizer"` // for datasets.RunTokenizer
	EndToken  string `toml:"end_token"`

	SpecialTokens bool `toml:"special_tokens"`

	Model moe.Config `toml:"model"`
}

// readCheckpoint returns the configuration and the folder of a checkpoint, or of a run's newest
// one. It reads nothing else.
func readCheckpoint(path string) (c runConfig, step string, err error) {
	if step, err = newest(path); err != nil {
		return c, "", err
	}
	root, err := system.OpenRoot(step)
	if err != nil {
		return c, "", err
	}
	defer root.Close()
	text, err := readSmall(root, "config.toml", stricttoml.MaxSize)
	if err != nil {
		return c, "", fmt.Errorf("%s: %w", step, err)
	}
	if c, err = parseConfig(text); err != nil {
		return c, "", fmt.Errorf("%s: config.toml: %w", step, err)
	}
	return c, step, nil
}

// parseConfig returns the model of a run's configuration: its flavor's, changed by the section of
// the model. It ignores other settings, which this package does not know.
func parseConfig(text []byte) (c runConfig, err error) {
	if len(text) > stricttoml.MaxSize {
		return c, fmt.Errorf("%d bytes are too long: expected at most %d", len(text), stricttoml.MaxSize)
	}
	var flavor struct {
		Name string `toml:"flavor"`
	}
	if err := toml.Unmarshal(text, &flavor); err != nil {
		return c, fmt.Errorf("%.500s", err.Error()) // it may quote the wrong value, of any length
	}
	if c.Model, err = moe.FlavorByName(flavor.Name); err != nil {
		return c, err
	}
	if err := toml.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%.500s", err.Error())
	}
	return c, c.Model.Validate()
}

// ParseModel returns the model of a run's configuration.
func ParseModel(config []byte) (moe.Config, error) {
	c, err := parseConfig(config)
	return c.Model, err
}
