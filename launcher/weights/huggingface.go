package weights

// Weights in a Hugging Face folder: a configuration, and one safetensors file or the shards of an
// index.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"spmoe/internal/strictjson"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/moe"
)

// The files of such a folder.
const (
	configName = "config.json"
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
	shardExt   = ".safetensors"
)

// Limits on what is read from a folder: bytes of a configuration and of an index, which takes about
// 100 per tensor, and open shards.
const (
	mostConfig = 1 << 20
	mostIndex  = 64 << 20
	mostShards = 1 << 12
)

// storage is the part of config.json about the storage of weights.
type storage struct {
	Family       string        `json:"model_type"`
	Quantization *quantization `json:"quantization_config"`
}

func (s *Source) openHuggingFace() error {
	root, err := system.OpenRoot(s.path)
	if err != nil {
		return err
	}
	defer root.Close()
	if s.json, err = readSmall(root, configName, mostConfig); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	var how storage
	if s.config, s.notes, err = moe.ParseHF(s.json); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	if err := strictjson.Unmarshal(s.json, &how); err != nil {
		return fmt.Errorf("%s: %s: %w", s.path, configName, err)
	}
	s.family = how.Family
	if err := s.openShards(root); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	if s.family == v4Family {
		if err := s.renameV4(); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if err := s.scaleBlocks(how.Quantization); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	// The library drops multi-token prediction when it loads a model, so a configuration may name
	// layers that are missing.
	if _, ok := s.entries[fmt.Sprintf("model.layers.%d.eh_proj.weight", s.config.Layers)]; !ok {
		s.config.MTPLayers = 0
	}
	return nil
}

// openShards opens all files with weights and adds their tensors: those of the single file if it
// exists, otherwise of the files in the index.
func (s *Source) openShards(root *os.Root) error {
	if _, err := root.Lstat(singleName); err == nil {
		file, err := s.openShard(root, singleName)
		if err != nil {
			return err
		}
		for _, info := range file.Tensors() {
			s.addStored(file, info)
		}
		return nil
	}
	text, err := readSmall(root, indexName, mostIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is neither %s nor %w: %s", singleName, err, expected)
	} else if err != nil {
		return err
	}
	index, err := parseIndex(text)
	if err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	shards := map[string]*safetensors.File{}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		in := index[name]
		if shards[in] == nil {
			if shards[in], err = s.openShard(root, in); err != nil {
				return fmt.Errorf("%w (%s names it)", err, indexName)
			}
		}
		info, ok := shards[in].Info(name)
		if !ok {
			return fmt.Errorf("%s: tensor %q is not in %s", indexName, name, in)
		}
		s.addStored(shards[in], info)
	}
	return nil
}

// addStored adds a tensor of a file.
func (s *Source) addStored(file *safetensors.File, info safetensors.Info) {
	s.entries[info.Name] = entry{Tensor{info.Name, info.DType, info.Shape}, func(dst []float32, offset int64) error {
		switch {
		case info.DType == safetensors.F8E4M3:
			return readCodes(file, info, dst, offset)
		case info.DType == safetensors.I64 && isTable(info.Name):
			return readTable(file, info, dst, offset)
		}
		return file.ReadFloat32s(info, dst, offset)
	}}
}

// parseIndex returns the file of each tensor.
func parseIndex(text []byte) (map[string]string, error) {
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := strictjson.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	if len(index.Files) == 0 {
		return nil, errors.New("weight_map is missing or empty: expected the file of each tensor")
	}
	files := map[string]bool{}
	for name, file := range index.Files {
		if file != filepath.Base(file) || !filepath.IsLocal(file) || !strings.HasSuffix(file, shardExt) {
			return nil, fmt.Errorf("tensor %.100q is said to be in %.100q: expected the name of a file in the folder that ends in %s", name, file, shardExt)
		}
		files[file] = true
	}
	if len(files) > mostShards {
		return nil, fmt.Errorf("weight_map names %d files: expected at most %d", len(files), mostShards)
	}
	return index.Files, nil
}

// openShard opens a file of the folder, which is closed with the source.
func (s *Source) openShard(root *os.Root, name string) (*safetensors.File, error) {
	file, size, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, file)
	return safetensors.NewFile(name, file, size)
}

// openRegular opens a regular file of the folder. It follows links that stay in the folder.
func openRegular(root *os.Root, name string) (file *os.File, size int64, err error) {
	stat, err := root.Stat(name)
	if err == nil && stat.Mode().IsRegular() {
		file, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if file != nil {
		stat, err = file.Stat() // another file may have replaced it
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err // which names no call of the system
	}
	switch link, lerr := root.Lstat(name); {
	case err != nil && lerr == nil && link.Mode()&fs.ModeSymlink != 0:
		return nil, 0, fmt.Errorf("%s: not a regular file of this folder, but a link: %w (cp -rL makes a folder with the files that links lead to)", name, err)
	case err != nil:
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	case !stat.Mode().IsRegular():
		if file != nil {
			file.Close()
		}
		return nil, 0, fmt.Errorf("%s: not a regular file (its mode is %v)", name, stat.Mode())
	}
	return file, stat.Size(), nil
}

// readSmall reads a whole regular file of at most most bytes.
func readSmall(root *os.Root, name string, most int64) ([]byte, error) {
	file, size, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > most {
		return nil, fmt.Errorf("%s: %d bytes are too long: expected at most %d", name, size, most)
	}
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}
