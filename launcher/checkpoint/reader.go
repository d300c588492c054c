package checkpoint

// Opening: the whole checkpoint is verified before any of it is returned.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
)

// Reader is an open, verified checkpoint. It is safe for concurrent use until Close. While it is
// open, Prune does not delete the checkpoint: its space would not be free.
type Reader struct {
	path     string
	manifest *manifest
	config   []byte
	lock     *os.File   // the manifest
	files    []*os.File // in the order of the manifest
	shards   []*safetensors.File
	spans    map[string][]span // by tensor name, see index
	aside    []Aside
}

// Open opens a checkpoint, or the newest intact one of a run folder (ErrNone if it has none). It
// verifies the manifest's hash and version, the presence and size of all files, and the CRC32C of
// each of their chunks. The error names what is damaged (ErrDamaged), or says that the folder is
// not a checkpoint.
//
// In a run folder it renames damaged checkpoints, for diagnosis, and takes the previous one.
// SetAside returns them. What has passed is given to checks, which may find damage, too.
func Open(path string, checks ...func(*Reader) error) (*Reader, error) {
	run, err := isRun(path)
	if err != nil {
		return nil, err
	}
	if run {
		return openRun(path, checks)
	}
	return openStep(path, true, checks)
}

// isRun reports whether path should be treated as a run's folder, not as a checkpoint's.
func isRun(path string) (bool, error) {
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrPermission):
		return false, fmt.Errorf("%w: make it readable for this user", err)
	case err != nil:
		return false, fmt.Errorf("%w: give the folder of a checkpoint or of a run", err)
	case !stat.IsDir():
		return false, fmt.Errorf("%s is a file: give the folder of a checkpoint or of a run", path)
	}
	if _, ok := parseStep(filepath.Base(path)); ok {
		return false, nil
	}
	_, err = os.Lstat(filepath.Join(path, manifestName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return err != nil, nil
}

// openStep opens the checkpoint in the folder path. Without whole it reads the headers only.
func openStep(path string, whole bool, checks []func(*Reader) error) (*Reader, error) {
	root, err := system.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path}
	if err := errors.Join(r.load(root, whole), root.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", path, err), r.Close())
	}
	for _, check := range checks {
		if err := check(r); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// load reads the headers and, with whole, verifies everything. After an error, Close closes what is
// open. Files are verified and read through the same open file, so that they cannot be replaced in
// between.
func (r *Reader) load(root *os.Root, whole bool) error {
	if err := r.open(root); err != nil {
		return err
	}
	invalid := r.parse()
	if !whole {
		return invalid
	}
	// A checksum tells more than what a damaged header says.
	return cmp.Or(verify(r.files, r.manifest.files()), invalid)
}

// open reads the manifest and opens the files.
func (r *Reader) open(root *os.Root) (err error) {
	if r.lock, err = openManifest(root); err != nil {
		return err
	}
	system.LockShared(r.lock) // until it is closed; on file systems without locks Prune ignores it
	if r.manifest, err = readManifest(root, r.lock); err != nil {
		return err
	}
	for _, w := range r.manifest.files() {
		f, err := openRegular(root, w.Name)
		if err != nil {
			return err
		}
		r.files = append(r.files, f)
	}
	return nil
}

// openRegular opens a regular file of a checkpoint. Anything else in its place is damage, and is
// not waited for.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := system.OpenIn(root, name, os.O_RDONLY)
	if errors.Is(err, system.ErrNotRegular) {
		return nil, damagef("%s is not a regular file", name)
	}
	return f, err
}

// parse reads the configuration and the headers of the shards.
func (r *Reader) parse() (err error) {
	want := r.manifest.files()
	r.config = make([]byte, want[0].Size)
	if _, err := r.files[0].ReadAt(r.config, 0); err != nil && err != io.EOF {
		return err
	}
	r.shards = make([]*safetensors.File, r.manifest.Ranks)
	for rank := range r.shards {
		w := want[1+rank]
		blocks := &blockReader{file: r.files[1+rank], size: min(int(w.Size), blockBytes, max(blockBytes/16, mostBlocks/len(r.shards)))}
		if r.shards[rank], err = safetensors.NewFile(w.Name, blocks, w.Size); err != nil {
			return damage{err}
		}
	}
	if r.spans, err = index(r.shards, r.manifest.Tensors); err != nil {
		return damage{err}
	}
	return nil
}

// mostBlocks is about the memory for the blocks of all shards.
const mostBlocks = 64 << 20

// blockReader reads a file in large blocks, because ranks read many small pieces.
type blockReader struct {
	file io.ReaderAt
	size int

	mu    sync.Mutex
	at    int64 // position of the block
	block []byte
}

// ReadAt implements [io.ReaderAt].
func (b *blockReader) ReadAt(p []byte, at int64) (n int, err error) {
	if len(p) >= b.size {
		return b.file.ReadAt(p, at)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at < b.at || at+int64(len(p)) > b.at+int64(len(b.block)) {
		if b.block == nil {
			b.block = make([]byte, b.size)
		}
		n, err = b.file.ReadAt(b.block[:b.size], at)
		b.at, b.block = at, b.block[:n]
	}
	if n = copy(p, b.block[at-b.at:]); n == len(p) {
		return n, nil
	}
	return n, cmp.Or(err, io.EOF)
}

// Path returns the folder of the checkpoint.
func (r *Reader) Path() string { return r.path }

// Step returns the number of steps that were complete when the checkpoint was written.
func (r *Reader) Step() int64 { return r.manifest.Step }

// Ranks returns the number of ranks that wrote it.
func (r *Reader) Ranks() int { return r.manifest.Ranks }

// Run returns the id of the run that wrote it. It is empty in a checkpoint of an earlier version.
func (r *Reader) Run() string { return r.manifest.Run }

// Size returns the bytes of the shards and the configuration.
func (r *Reader) Size() (total int64) {
	for _, f := range r.manifest.files() {
		total += f.Size
	}
	return total
}

// SetAside returns the newer, damaged checkpoints of the run, newest first, if Open was given a
// run.
func (r *Reader) SetAside() []Aside { return r.aside }

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

// DType returns the element type of a tensor, F32 or BF16 as in safetensors. It is empty if no rank
// has saved an element.
func (r *Reader) DType(name string) string {
	if spans := r.spans[name]; len(spans) > 0 {
		return spans[0].info.DType
	}
	return ""
}

// Digest identifies the saved state: checkpoints with the same digest hold the same one, and were
// written by the same number of ranks.
func (r *Reader) Digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %v", r.manifest.Step, r.manifest.Shards)
	return hex.EncodeToString(h.Sum(nil))
}

// Close closes the files. No method may be called afterwards.
func (r *Reader) Close() (err error) {
	for _, f := range append(r.files, r.lock) {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Aside is a damaged checkpoint that was renamed.
type Aside struct {
	Path, Now string // its old and its new path
	Err       error  // what is wrong with it
}

// String implements [fmt.Stringer].
func (a Aside) String() string {
	return fmt.Sprintf("%v; it was set aside as %s", a.Err, filepath.Base(a.Now))
}

// openRun opens the newest intact checkpoint of the run folder dir, and sets aside the newer ones,
// which are damaged. Errors other than damage, such as a version that this program does not know,
// end the search, because the state may be intact.
func openRun(dir string, checks []func(*Reader) error) (*Reader, error) {
	var aside []Aside
	none := fmt.Errorf("not a spmoe checkpoint, nor a run that has one: %s: %w", dir, ErrNone)
	for {
		steps, err := list(dir)
		if err != nil {
			return nil, err
		}
		if len(steps) == 0 {
			return nil, none
		}
		path := filepath.Join(dir, steps[0].name)
		r, err := openStep(path, true, checks)
		if err == nil {
			r.aside = aside
			return r, nil
		}
		if errors.Is(err, os.ErrNotExist) { // another process has renamed or pruned it
			continue
		}
		if !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		now, renamed := setAside(path)
		switch {
		case errors.Is(renamed, os.ErrNotExist):
		case renamed != nil:
			return nil, fmt.Errorf("%w; to continue from the previous checkpoint, it must be set aside: %w", err, renamed)
		default:
			aside = append(aside, Aside{path, now, err})
			none = fmt.Errorf("%w; %v", none, aside[len(aside)-1])
		}
	}
}

// setAside renames a damaged checkpoint to the first free name that readers and writers ignore.
func setAside(path string) (now string, err error) {
	if now, err = system.FreeName(path + badSuffix); err == nil {
		err = os.Rename(path, now)
	}
	return now, err
}
