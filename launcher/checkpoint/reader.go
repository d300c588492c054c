// Opening: nothing of a checkpoint is handed out before all of it has been verified.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"spmoe/launcher/checkpoint/safetensors"
)

// Reader is an open, verified checkpoint. It is safe for concurrent use until Close.
type Reader struct {
	path     string
	manifest *manifest
	config   []byte
	files    []*os.File
	spans    map[string][]span // by tensor name, see index
}

// Open opens a checkpoint, or the newest complete one of a run folder (ErrNone if it has none). It verifies the
// manifest's hash and version, the presence and size of all files and their CRC32C, and returns an error that says
// which of them is broken, or that the folder is no checkpoint.
func Open(path string) (*Reader, error) {
	path, err := locate(path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path}
	if err := errors.Join(r.load(root), root.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", path, err), r.Close())
	}
	return r, nil
}

// locate returns the checkpoint folder that path stands for.
func locate(path string) (string, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !stat.IsDir() {
		return "", fmt.Errorf("%s is a file: give the folder of a checkpoint or of a run", path)
	}
	switch _, err := os.Lstat(filepath.Join(path, manifestName)); {
	case err == nil:
		return path, nil
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	if _, ok := parseStep(filepath.Base(path)); ok {
		return "", fmt.Errorf("checkpoint %s is not complete: it has no %s: use an earlier one", path, manifestName)
	}
	latest, err := Latest(path)
	if errors.Is(err, ErrNone) {
		return "", fmt.Errorf("not a spmoe checkpoint, nor a run that has one: %w", err)
	}
	return latest, err
}

// load reads and verifies everything; after an error Close releases what is open.
func (r *Reader) load(root *os.Root) (err error) {
	if r.manifest, err = readManifest(root); err != nil {
		return err
	}
	if err := r.manifest.checkName(r.path); err != nil {
		return err
	}
	want := r.manifest.Config
	if r.config, err = readSmall(root, want.Name, maxConfig); err != nil {
		return err
	}
	if err := want.match(int64(len(r.config)), crc32.Checksum(r.config, castagnoli)); err != nil {
		return err
	}
	r.files = make([]*os.File, r.manifest.Ranks)
	shards := make([]*safetensors.File, r.manifest.Ranks)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for rank := range shards {
		group.Go(func() (err error) {
			r.files[rank], shards[rank], err = openShard(root, r.manifest.Shards[rank])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.spans, err = index(shards, r.manifest.Tensors)
	return err
}

// openShard verifies a shard and reads its header, through one open file, so that it cannot change in between.
func openShard(root *os.Root, want file) (*os.File, *safetensors.File, error) {
	f, err := root.Open(want.Name)
	if err != nil {
		return nil, nil, err
	}
	sum := crc32.New(castagnoli)
	size, err := io.CopyBuffer(sum, io.NewSectionReader(f, 0, want.Size), make([]byte, blockSize))
	if err != nil {
		return f, nil, err
	}
	if err := want.match(size, sum.Sum32()); err != nil {
		return f, nil, err
	}
	shard, err := safetensors.NewFile(want.Name, f, size)
	return f, shard, err
}

// match returns an error unless size and checksum are those of f.
func (f file) match(size int64, crc uint32) error {
	if size != f.Size || crc != f.CRC32C {
		return fmt.Errorf("%s is damaged: %d bytes with CRC32C %08x, it was written with %d and %08x: use an earlier checkpoint",
			f.Name, size, crc, f.Size, f.CRC32C)
	}
	return nil
}

// Path returns the folder of the checkpoint.
func (r *Reader) Path() string { return r.path }

// Step returns the number of steps that were complete when the checkpoint was written.
func (r *Reader) Step() int64 { return r.manifest.Step }

// Ranks returns the number of ranks that wrote it.
func (r *Reader) Ranks() int { return r.manifest.Ranks }

// Meta unmarshals the trainer's state, as given to Commit, into the variable that into points to.
func (r *Reader) Meta(into any) error {
	if err := json.Unmarshal(r.manifest.Meta, into); err != nil {
		return fmt.Errorf("checkpoint %s: trainer state: %w", r.path, err)
	}
	return nil
}

// ConfigTOML returns the configuration, as given to Commit.
func (r *Reader) ConfigTOML() []byte { return r.config }

// Tensors returns the full shape of every tensor, by name.
func (r *Reader) Tensors() map[string][]int { return maps.Clone(r.manifest.Tensors) }

// Close releases the files; no method may be called afterwards.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range r.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
