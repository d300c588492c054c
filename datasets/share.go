package datasets

// Text that one process of a host reads for the others, in a file that they map into memory: a line
// that describes it, and the ids of its streams, each from a multiple of four bytes on.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"spmoe/datasets/arrowipc"
)

// sharedText is the first line of such a file.
type sharedText struct {
	Counts
	Streams []sharedStream // the training streams of all groups of paths, then the validation streams
}

// sharedStream is a stream in the file. It has no fingerprint if it is that of a token file.
type sharedStream struct {
	Narrow, Wide int // ids of one byte, or of four
	Fingerprint  string
}

// Share writes the text of d for [Options.Shared]. Token files stay where they are.
func (d *Data) Share(to io.Writer) error {
	about := sharedText{Counts: d.Counts}
	streams := slices.Concat(d.Train.all(), d.HeldOut.all())
	for i, p := range streams {
		if p.stream.name != "" {
			streams[i].stream = Stream{}
		}
		s := streams[i].stream
		about.Streams = append(about.Streams, sharedStream{len(s.narrow), len(s.wide), s.fingerprint})
	}
	line, err := json.Marshal(about)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 1<<20) // which remembers the first error
	write := func(b []byte) {
		w.Write(b)
		w.Write(make([]byte, padding(len(b))))
	}
	write(append(line, '\n'))
	for _, p := range streams {
		write(p.stream.narrow)
		for ids := range slices.Chunk(p.stream.wide, 1<<16) {
			_ = binary.Write(w, binary.LittleEndian, ids)
		}
	}
	return w.Flush()
}

// padding is the number of bytes from n on to a multiple of four.
func padding(n int) int { return -n & 3 }

// openShared maps the file at path, which [Data.Share] has written, into memory. It returns the
// training and the validation streams of its groups of paths.
func (d *Data) openShared(path string, groups int) (train, heldOut []Stream, err error) {
	file, unmap, err := mapPath(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the text that another process has read: %w", err)
	}
	d.unmap = append(d.unmap, unmap)
	line, _, _ := bytes.Cut(file, []byte("\n"))
	var about sharedText
	if err := json.Unmarshal(line, &about); err != nil || len(about.Streams) != 2*groups {
		return nil, nil, fmt.Errorf("%s is not the text of %d groups of paths (%v): only a launcher gives such files", path, groups, err)
	}
	var all []Stream
	at := len(line) + 1
	at += padding(at)
	for _, of := range about.Streams {
		s := Stream{narrow: file[at:][:of.Narrow:of.Narrow], fingerprint: of.Fingerprint}
		if of.Wide > 0 {
			s.narrow = nil
		}
		at += of.Narrow + padding(of.Narrow)
		if s.wide, err = arrowipc.View[int32](file[at:], int64(of.Wide)); err != nil {
			return nil, nil, err
		}
		at += 4 * of.Wide
		all = append(all, s)
	}
	d.Counts = about.Counts
	return all[:groups], all[groups:], nil
}
