package trainer

// The text of a run: who reads it, and the loaders and windows on it.

import (
	"errors"
	"fmt"
	"os"

	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
)

// Text says where a job finds its text, if not in the files of its configuration alone.
type Text struct {
	New  bool     // data that is not that of the checkpoint is read from its start
	From string   // file with the text, which another process has read; empty: this one reads it
	To   *os.File // empty file for the text, which other processes need; nil: none does
}

// read opens the tokenizer, loads the corpus and checks that it is long enough. folder is that of a
// running job or of its checkpoint, and empty for a new run.
func (j *Job) read(folder string) error {
	if err := j.openTokenizer(folder); err != nil {
		return err
	}
	var err error
	if j.cfg.DocumentMask {
		if j.separator, err = datasets.Separator(j.tokenizer); err != nil {
			return fmt.Errorf("document_mask: %w", err)
		}
	}
	if err = j.load(); err != nil {
		return err
	}
	j.corpus, j.train, j.heldOut = j.data.Counts, j.data.Train, j.data.HeldOut
	if _, err = j.loader(0); err != nil {
		err = fmt.Errorf("training data: %w", err)
	} else {
		_, err = j.windows()
	}
	if err != nil {
		return errors.Join(err, j.Close())
	}
	return nil
}

// load reads the data. A process that reads it for others goes on with the copy that all share.
func (j *Job) load() (err error) {
	options := dataOptions(j.cfg)
	options.Shared = j.text.From
	j.data, err = datasets.Load(j.cfg.Data, j.tokenizer, options)
	if to := j.text.To; err == nil && to != nil {
		if err = errors.Join(j.data.Share(to), j.data.Close()); err != nil {
			return fmt.Errorf("sharing the text with the processes of this host: %w", err)
		}
		options.Shared = fmt.Sprintf("/proc/self/fd/%d", to.Fd())
		j.data, err = datasets.Load(j.cfg.Data, j.tokenizer, options)
	}
	return err
}

// loader returns the training text of one of the ranks that read different sequences.
func (j *Job) loader(rank int) (*datasets.Loader, error) {
	return datasets.NewLoader(j.train, datasets.LoaderConfig{
		Seq:         j.cfg.Seq,
		GlobalBatch: j.cfg.Batch,
		Rank:        rank,
		Ranks:       j.cfg.DataRanks(j.ranks),
		Passes:      j.cfg.PassSizes(j.ranks),
		Seed:        j.cfg.Seed,
	})
}

// dataOptions says how the text is read.
func dataOptions(c config.Config) datasets.Options {
	return datasets.Options{Field: c.DataField, Rules: datasets.Rules(c.DataRules), TokenizerName: c.Tokenizer}
}

// windows returns the windows of an evaluation, of all ranks.
func (j *Job) windows() (*datasets.Windows, error) {
	return datasets.NewWindows(j.heldOut, datasets.WindowsConfig{Seq: j.cfg.Seq, Count: j.cfg.EvalSequences, Ranks: 1})
}
