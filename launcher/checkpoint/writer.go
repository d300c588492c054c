package checkpoint

// Writing: ranks fill a hidden folder, each with its own files, and one commit renames the folder.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"spmoe/launcher/checkpoint/safetensors"
)

// Writer writes one checkpoint. It holds little except names: every process of a run may have its
// own.
type Writer struct {
	Run string // id of the run, for the manifest; Commit replaces no checkpoint of another run

	files       Files
	temp, final string
	step        int64
	ranks       int
	tokenizer   *file // from WriteTokenizer

	// Checks are called by Commit with what was written. An error says why it cannot be loaded.
	Checks []func(*Reader) error
}

// NewWriter starts the checkpoint of a step in the run folder dir, which it creates if necessary.
// It deletes what dead writers have left, of any step: a run has one writer at a time. It must be
// called once, before any rank writes; the other ranks then use Join.
func NewWriter(fs Files, dir string, step int64, ranks int) (*Writer, error) {
	w, err := newWriter(fs, dir, step, ranks)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := fs.Mkdir(dir); err != nil { // not os's: the folder of a run may have been moved
			return nil, err
		}
	}
	if err := sweep(fs, dir, tempSuffix); err != nil {
		return nil, err
	}
	return w, fs.Mkdir(w.temp)
}

// Join returns a writer for the checkpoint that another rank has started with NewWriter and the
// same arguments.
func Join(fs Files, dir string, step int64, ranks int) (*Writer, error) {
	w, err := newWriter(fs, dir, step, ranks)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(w.temp); err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: no rank has started it: %w", step, err)
	}
	return w, nil
}

func newWriter(fs Files, dir string, step int64, ranks int) (*Writer, error) {
	if step < 0 || ranks < 1 || ranks > maxRanks {
		return nil, fmt.Errorf("checkpoint of step %d by %d ranks: expected a step from 0 and 1 to %d ranks", step, ranks, maxRanks)
	}
	return &Writer{
		files: fs,
		temp:  filepath.Join(dir, hiddenName(step, tempSuffix)),
		final: filepath.Join(dir, stepName(step)),
		step:  step,
		ranks: ranks,
	}, nil
}

// receipt is a rank's contribution to the manifest.
type receipt struct {
	Shard   file             `json:"shard"`
	Tensors map[string][]int `json:"tensors"`
}

// WriteShard writes the pieces of one rank and syncs them. It returns an [ErrChanged] if what it
// has written differs from the checksums that training has of the pieces. It does not retain their
// elements. Ranks may call it concurrently, each once. Pieces without elements only make their
// tensor known. Two ranks may save the same range if they hold the same values.
func (w *Writer) WriteShard(rank int, pieces []Piece, sums Sums) (err error) {
	defer w.explain(&err, ", rank %d of %d", rank, w.ranks)
	if rank < 0 || rank >= w.ranks {
		return fmt.Errorf("expected a rank from 0 to %d", w.ranks-1)
	}
	r := receipt{Tensors: map[string][]int{}}
	var tensors []safetensors.Tensor
	for _, p := range pieces {
		if err := p.check(); err != nil {
			return err
		}
		if err := addShape(r.Tensors, p.Name, p.Shape); err != nil {
			return err
		}
		if n := p.Len(); n > 0 {
			tensors = append(tensors, safetensors.Tensor{
				Name:  p.key(),
				DType: p.dtype(),
				Shape: []int{n},
				Data:  p.Bytes(),
			})
		}
	}
	origin := map[string]string{
		"step":  strconv.FormatInt(w.step, 10),
		"rank":  strconv.Itoa(rank),
		"ranks": strconv.Itoa(w.ranks),
	}
	layout, err := safetensors.NewLayout(tensors, origin)
	if err != nil {
		return err
	}
	r.Shard, err = writeFile(w.files, w.temp, shardName(rank, w.ranks), func(out io.Writer) error {
		return cmp.Or(layout.Write(out), sums.match(pieces))
	})
	if err != nil {
		return err
	}
	r.Shard.Sums = sums
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return create(w.files, filepath.Join(w.temp, receiptName(rank, w.ranks)), func(out Output) error {
		_, err := out.Write(data) // not synced: receipts are deleted when the checkpoint is complete
		return err
	})
}

// explain adds to an error the checkpoint that could not be written, and its part.
func (w *Writer) explain(err *error, part string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("checkpoint of step %d%s: %w", w.step, fmt.Sprintf(part, args...), *err)
	}
}

// addShape records the shape of a tensor, which must be the same in all its pieces.
func addShape(shapes map[string][]int, name string, shape []int) error {
	if known, ok := shapes[name]; ok && !slices.Equal(known, shape) {
		return fmt.Errorf("tensor %q has shape %v in one piece and %v in another", name, known, shape)
	}
	shapes[name] = append([]int{}, shape...) // not nil, which JSON would write as null
	return nil
}

// WriteTokenizer writes the run's tokenizer.json, if it has one. The rank that commits calls it
// first.
func (w *Writer) WriteTokenizer(data []byte) (err error) {
	defer w.explain(&err, "")
	f, err := writeSmall(w.files, w.temp, tokenizerName, data)
	w.tokenizer = &f
	return err
}

// Commit completes the checkpoint after every rank's WriteShard has returned nil. meta is the
// trainer's state, which must marshal to JSON. When Commit has returned nil, the checkpoint
// survives a power failure and has replaced an earlier one of the same step. Before that, readers
// do not see it. After an error call Abort.
func (w *Writer) Commit(meta any, configTOML []byte) (err error) {
	defer w.explain(&err, "")
	if there, err := complete(w.final); err == nil && !there.belongsTo(w.Run) {
		return fmt.Errorf("%s is there already, and is of another run, %s: move it away", w.final, there.Run)
	}
	m := manifest{
		Version:   formatVersion,
		Step:      w.step,
		Ranks:     w.ranks,
		Run:       w.Run,
		Chunk:     chunkBytes,
		Tokenizer: w.tokenizer,
		Tensors:   map[string][]int{},
	}
	if m.Meta, err = json.Marshal(meta); err != nil {
		return fmt.Errorf("trainer state: %w", err)
	}
	for rank := range w.ranks {
		r, err := w.takeReceipt(rank)
		if err != nil {
			return err
		}
		m.Shards = append(m.Shards, r.Shard)
		for name, shape := range r.Tensors {
			if err := addShape(m.Tensors, name, shape); err != nil {
				return err
			}
		}
	}
	if m.Config, err = writeSmall(w.files, w.temp, configName, configTOML); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	data, err := m.encode()
	if err != nil {
		return err
	}
	if _, err := writeSmall(w.files, w.temp, manifestName, data); err != nil {
		return err
	}
	if err := w.files.SyncDir(w.temp); err != nil {
		return err
	}
	r, err := openStep(w.temp, false, w.Checks)
	if err != nil {
		return fmt.Errorf("what was written %w: %w", ErrChanged, err)
	}
	if err := r.Close(); err != nil {
		return err
	}
	return publish(w.files, w.temp, w.final)
}

// takeReceipt reads a rank's receipt and deletes it.
func (w *Writer) takeReceipt(rank int) (r receipt, err error) {
	path := filepath.Join(w.temp, receiptName(rank, w.ranks))
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("rank %d of %d has not written its shard", rank, w.ranks)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, w.files.Remove(path)
}

// Abort deletes what has been written and not committed. No rank may be writing. After Commit it
// does nothing.
func (w *Writer) Abort() error { return removeAll(w.files, w.temp) }
