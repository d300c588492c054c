package checkpoint

// The manifest. It is written last, which turns a folder into a checkpoint, and it has checksums of
// every file.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// formatVersion is incremented when older readers would misinterpret the format or refuse it as
// damaged. Version 2 has no id of the run and no tier in the trainer's state. Version 3
// has its checksums of the state in the headers of shards, where this version does not read them.
const (
	formatVersion = 4
	oldestVersion = 2
)

const (
	maxManifest  = 64 << 20 // bytes; a tensor takes about 100
	maxConfig    = 16 << 20
	maxTokenizer = 128 << 20
	maxRanks     = 1 << 20
)

// manifest is the body of manifest.json.
type manifest struct {
	Version   int              `json:"version"`
	Step      int64            `json:"step"`
	Ranks     int              `json:"ranks"`
	Run       string           `json:"run,omitempty"` // the run's id; empty: an earlier version wrote it
	Meta      json.RawMessage  `json:"meta"`          // the trainer's state
	Chunk     int64            `json:"chunk_bytes"`   // chunkBytes: bytes per checksum
	Config    file             `json:"config"`
	Tokenizer *file            `json:"tokenizer,omitempty"` // nil: the tokenizer is built in
	Shards    []file           `json:"shards"`              // by rank
	Tensors   map[string][]int `json:"tensors"`             // full shapes
}

// The envelope is fixed text around hash and body, compared byte for byte, so there is only one
// encoding.
const (
	envelopeHead = `{"sha256":"`
	envelopeMid  = `","body":`
	envelopeTail = "}\n"
)

// enclose puts a body into its envelope, which is JSON again. The hash covers the body's bytes.
func enclose(body []byte) []byte {
	return fmt.Appendf(nil, "%s%x%s%s%s", envelopeHead, sha256.Sum256(body), envelopeMid, body, envelopeTail)
}

// errVersion is not damage, because another program can read such a checkpoint.
var errVersion = errors.New("checkpoint version")

var errForeign = errors.New("not the manifest of a spmoe checkpoint")

// bodyOf is the inverse of enclose.
func bodyOf(data []byte) ([]byte, error) {
	const prefix = len(envelopeHead) + 2*sha256.Size + len(envelopeMid)
	if !bytes.HasPrefix(data, []byte(envelopeHead)) || len(data) < prefix+len(envelopeTail) {
		return nil, errForeign
	}
	body := data[prefix : len(data)-len(envelopeTail)]
	if !bytes.Equal(enclose(body), data) {
		return nil, errors.New("damaged: its SHA-256 is not that of its body")
	}
	return body, nil
}

func (m *manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	data := enclose(body)
	if len(data) > maxManifest {
		return nil, fmt.Errorf("the manifest takes %d bytes, the limit is %d: save less trainer state", len(data), maxManifest)
	}
	return data, nil
}

// parseManifest reads manifest.json. It ensures that there is one shard per rank, with the
// right names, and that shapes are valid.
func parseManifest(data []byte) (*manifest, error) {
	body, err := bodyOf(data)
	if err != nil {
		return nil, err
	}
	// The version comes first, because another version may have other fields.
	var v struct{ Version int }
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, err
	}
	if v.Version < oldestVersion || v.Version > formatVersion {
		return nil, fmt.Errorf("%w %d, this program reads versions %d to %d: use the program that wrote it", errVersion, v.Version, oldestVersion, formatVersion)
	}
	m := new(manifest)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(m); err != nil {
		return nil, err
	}
	return m, m.check()
}

// check applies the rules that the JSON types do not express.
func (m *manifest) check() error {
	switch {
	case m.Step < 0:
		return fmt.Errorf("step %d is negative", m.Step)
	case m.Ranks < 1 || m.Ranks > maxRanks || m.Ranks != len(m.Shards):
		return fmt.Errorf("%d shards of %d ranks", len(m.Shards), m.Ranks)
	case m.Chunk != chunkBytes:
		return fmt.Errorf("checksums of chunks of %d bytes: expected %d", m.Chunk, chunkBytes)
	case m.Config.Name != configName || m.Config.Size > maxConfig:
		return fmt.Errorf("config %q of %d bytes: expected %s of at most %d", m.Config.Name, m.Config.Size, configName, maxConfig)
	}
	if t := m.Tokenizer; t != nil && (t.Name != tokenizerName || t.Size > maxTokenizer) {
		return fmt.Errorf("tokenizer %q of %d bytes: expected %s of at most %d", t.Name, t.Size, tokenizerName, maxTokenizer)
	}
	for _, f := range m.files() {
		if f.Size < 0 || int64(len(f.CRC32C)) != chunksOf(f.Size) {
			return fmt.Errorf("%s of %d bytes has %d checksums, of chunks of %d bytes", f.Name, f.Size, len(f.CRC32C), chunkBytes)
		}
	}
	for rank, s := range m.Shards {
		if s.Name != shardName(rank, m.Ranks) {
			return fmt.Errorf("shard of rank %d is %q: expected %q", rank, s.Name, shardName(rank, m.Ranks))
		}
	}
	for name, shape := range m.Tensors {
		if err := (Piece{Name: name, Shape: shape}).check(); err != nil {
			return err
		}
	}
	return nil
}

// files lists the files that the manifest describes: the configuration, the shards by rank, and the
// tokenizer.
func (m *manifest) files() []file {
	all := append([]file{m.Config}, m.Shards...)
	if m.Tokenizer != nil {
		all = append(all, *m.Tokenizer)
	}
	return all
}

// openManifest opens the manifest of the checkpoint in root.
func openManifest(root *os.Root) (*os.File, error) {
	f, err := openRegular(root, manifestName)
	if errors.Is(err, os.ErrNotExist) {
		return nil, damagef("not complete: it has no %s", manifestName)
	}
	return f, err
}

// readManifest reads the manifest of the checkpoint in root and checks that it is of the step in
// the folder's name, and that every file exists in its full size.
func readManifest(root *os.Root, from *os.File) (*manifest, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if len(data) > maxManifest {
		return nil, damagef("%s: expected a regular file of at most %d bytes", manifestName, maxManifest)
	}
	m, err := parseManifest(data)
	if errors.Is(err, errVersion) {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	} else if err != nil {
		return nil, damagef("%s: %w", manifestName, err)
	}
	if step, ok := parseStep(filepath.Base(root.Name())); ok && step != m.Step {
		return nil, damagef("%s is of step %d: the folder has been renamed", manifestName, m.Step)
	}
	for _, f := range m.files() {
		stat, err := root.Lstat(f.Name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, damagef("%s is missing", f.Name)
		case err != nil:
			return nil, err
		case !stat.Mode().IsRegular():
			return nil, damagef("%s is not a regular file", f.Name)
		case stat.Size() != f.Size:
			return nil, damagef("%s has %d bytes, it was written with %d (truncated?)", f.Name, stat.Size(), f.Size)
		}
	}
	return m, nil
}
