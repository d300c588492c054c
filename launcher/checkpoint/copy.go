package checkpoint

// Copies of ranks' parts, for folders that not every rank can write to.

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Part returns what WriteShard has written for a rank, for Accept in another folder: its receipt,
// and its shard, which the caller closes.
func (w *Writer) Part(rank int) (receipt []byte, shard *os.File, err error) {
	if receipt, err = os.ReadFile(filepath.Join(w.temp, receiptName(rank, w.ranks))); err != nil {
		return nil, nil, err
	}
	shard, err = os.Open(filepath.Join(w.temp, shardName(rank, w.ranks)))
	return receipt, shard, err
}

// Accept writes a rank's part, which Part has returned on the rank's host, and checks that it is
// complete.
func (w *Writer) Accept(rank int, receiptText []byte, shard io.Reader) (err error) {
	defer w.explain(&err, ", copy of rank %d's part", rank)
	var r receipt
	if err := json.Unmarshal(receiptText, &r); err != nil {
		return err
	}
	name := shardName(rank, w.ranks)
	got, err := writeFile(w.files, w.temp, name, func(out *chunker) error {
		_, err := io.Copy(out, shard)
		return err
	})
	if err != nil {
		return err
	}
	if r.Shard.Name != name || got.Size != r.Shard.Size || !slices.Equal(got.CRC32C, r.Shard.CRC32C) {
		return fmt.Errorf("%s has arrived damaged: %d bytes arrived, %d were sent", name, got.Size, r.Shard.Size)
	}
	return w.writeReceipt(rank, receiptText)
}
