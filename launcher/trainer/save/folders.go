package save

// Run folders of several hosts: one folder that all hosts share, or one per host. Each folder gets
// the whole checkpoint, so that a run can continue from any host's folder.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"spmoe/collective"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
)

// Folders says which hosts share a run folder: for each host, the first host with the same folder.
type Folders struct {
	comm  *collective.Comm
	owner []int
}

// findFolders determines which hosts share dir. It is collective. Every host writes a mark to its
// folder and looks for the marks of other hosts.
func findFolders(c *collective.Comm, dir string) (Folders, error) {
	hosts, here := c.Hosts(), c.Host()
	f := Folders{c, make([]int, len(hosts))}
	if len(hosts) == 1 {
		return f, nil
	}
	mark := func(host int) string { return filepath.Join(dir, fmt.Sprintf(".host-%d", host)) }
	leads := hosts[here][0] == c.Rank()
	var failed error
	if leads {
		var file *os.File
		if file, failed = system.OpenOwn(dir, filepath.Base(mark(here)), os.O_WRONLY|os.O_CREATE); failed == nil {
			failed = file.Close()
		}
	}
	if err := c.Barrier(); err != nil {
		return f, err
	}
	found := make([]int64, len(hosts))
	if leads && failed == nil {
		// A network file system shows the files of others only after a local change.
		for h := here; h >= 0; h-- {
			if _, err := os.Lstat(mark(h)); err == nil {
				found[here] = int64(h)
			}
		}
	}
	if err := collective.AllReduce(c, found, collective.Max); err != nil {
		return f, err
	}
	if leads && failed == nil {
		failed = os.Remove(mark(here))
	}
	for h := range hosts {
		f.owner[h] = int(found[h])
	}
	return f, failed
}

// owns reports whether this rank begins and completes the checkpoints of a folder.
func (f Folders) owns() bool {
	here := f.comm.Host()
	return f.owner[here] == here && f.comm.Hosts()[here][0] == f.comm.Rank()
}

// lock locks this rank's folder if it owns one that is not the first host's. The process of rank 0
// has locked that one.
func (f Folders) lock(dir string) (*system.FolderLock, error) {
	if f.comm.Rank() == 0 || !f.owns() {
		return nil, nil
	}
	return system.LockFolder(dir)
}

// apart reports whether there are several folders.
func (f Folders) apart() bool { return slices.Max(f.owner) > 0 }

// chunk is the number of bytes of a file that travel together.
const chunk = 4 << 20

// copyParts sends every rank's part to the folders that it has not written to. Ranks handle the
// parts in the same order. failed is an error of a disk; broken says that the ranks could not
// communicate.
func (f Folders) copyParts(w *checkpoint.Writer) (failed, broken error) {
	c := f.comm
	for owner, first := range f.owner {
		if first != owner {
			continue
		}
		for j := range c.Size() {
			if f.owner[c.HostOf(j)] == owner {
				continue
			}
			to := c.Proxy(owner, j)
			var err error
			switch c.Rank() {
			case j:
				err, broken = sendPart(c, w, to)
			case to:
				err, broken = receivePart(c, w, j)
			}
			if failed = errors.Join(failed, err); broken != nil {
				return failed, broken
			}
		}
	}
	return failed, nil
}

// mostReceipt bounds the size of a receipt, which names a rank's tensors.
const mostReceipt = 16 << 20

// sendPart sends what this rank has written: two lengths, the receipt and the shard. What cannot be
// read has length 0.
func sendPart(c *collective.Comm, w *checkpoint.Writer, to int) (failed, broken error) {
	messages := c.NewMessages(collective.KindMessage)
	send := func(b []byte) error {
		messages.Send(to, b)
		return messages.Wait()
	}
	receipt, shard, failed := w.Part(c.Rank())
	size := int64(0)
	if failed == nil {
		defer shard.Close()
		var info os.FileInfo
		if info, failed = shard.Stat(); failed == nil {
			size = info.Size()
		}
	}
	if failed != nil {
		receipt = nil
	}
	lengths := binary.LittleEndian.AppendUint64(nil, uint64(len(receipt)))
	if broken := send(binary.LittleEndian.AppendUint64(lengths, uint64(size))); broken != nil {
		return failed, broken
	}
	if broken := send(receipt); broken != nil {
		return failed, broken
	}
	for b := make([]byte, min(size, chunk)); size > 0; size -= int64(len(b)) {
		b = b[:min(size, chunk)]
		if _, err := io.ReadFull(shard, b); err != nil && failed == nil {
			failed = err // the receiver sees that the bytes are wrong
		}
		if broken := send(b); broken != nil {
			return failed, broken
		}
	}
	return failed, nil
}

// receivePart writes what another rank sends.
func receivePart(c *collective.Comm, w *checkpoint.Writer, from int) (failed, broken error) {
	in := &incoming{messages: c.NewMessages(collective.KindMessage), from: from}
	lengths := make([]byte, 16)
	if broken := in.take(lengths); broken != nil {
		return nil, broken
	}
	size := binary.LittleEndian.Uint64(lengths)
	if size > mostReceipt {
		return nil, fmt.Errorf("rank %d sends a receipt of %d bytes; at most %d are possible", from, size, mostReceipt)
	}
	receipt := make([]byte, size)
	if broken := in.take(receipt); broken != nil {
		return nil, broken
	}
	in.left = int64(binary.LittleEndian.Uint64(lengths[8:]))
	if len(receipt) > 0 {
		failed = w.Accept(from, receipt, in)
	}
	_, broken = io.Copy(io.Discard, in) // drain the rest if the disk is full
	return failed, broken
}

// incoming reads a file that another rank sends.
type incoming struct {
	messages *collective.Messages
	from     int
	left     int64  // bytes still to come
	room     []byte // buffer of the last chunk
	rest     []byte // its unread part
	broken   error
}

func (in *incoming) take(b []byte) error {
	in.messages.Recv(in.from, b)
	return in.messages.Wait()
}

// Read implements [io.Reader].
func (in *incoming) Read(b []byte) (int, error) {
	if in.broken != nil {
		return 0, in.broken
	}
	if len(in.rest) == 0 {
		if in.left <= 0 {
			return 0, io.EOF
		}
		if in.room == nil {
			in.room = make([]byte, min(in.left, chunk))
		}
		in.rest = in.room[:min(in.left, chunk)]
		in.left -= int64(len(in.rest))
		if in.broken = in.take(in.rest); in.broken != nil {
			return 0, in.broken
		}
	}
	n := copy(b, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}
