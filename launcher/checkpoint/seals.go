package checkpoint

// Seals: a shard is compared with the checksums that training has of its state, when it is written
// and when it is opened. CRC32C only tells what was written; seals tell what should have been.
//
// The header of a shard has a digest of the seals of each vector, and which pieces are its parts. A
// line is DIGEST NUMBERS NAME, such as
//
//	9a0c53f8fd5b7c16 4,0,2 exp_avg of the dense group
//
// Numbers count the pieces of the shard in the order of their names.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	seals "spmoe/internal/seal"
	"spmoe/launcher/checkpoint/safetensors"
)

// Vector is what training knows of some pieces of one type: the seals of their elements, one piece
// after another.
type Vector struct {
	Name  string
	Seals []uint64 // of every [seals.Len] elements
}

// Change is what WriteShard has found different from its seals.
type Change struct {
	Vector string
	Memory bool // the pieces had changed, and were restored; otherwise what was being written
}

// ErrChanged says that state differs from its seals and cannot be restored.
var ErrChanged = errors.New("differs from its checksums")

// sealsKey is the key of the seals in the header of a shard.
const sealsKey = "seals"

// sealedVector is a vector of a shard.
type sealedVector struct {
	name   string
	digest uint64 // of the seals of training
	size   int64  // bytes per element
	length int64  // bytes
	found  []uint64
}

// blockBytes returns the bytes that a seal covers.
func (v *sealedVector) blockBytes() int64 { return seals.Len * v.size }

// sealing computes the seals of a shard from its bytes, which may come in any order and
// concurrently.
type sealing struct {
	vectors []sealedVector
	spans   []sealedSpan // by position
	mutex   sync.Mutex
	partial map[partialBlock]*collected
}

// sealedSpan is a piece: bytes [begin, end) of the file are those of a vector from byte at on.
type sealedSpan struct {
	begin, end int64
	vector     int
	at         int64
}

type partialBlock struct {
	vector int
	block  int64
}

// collected are the bytes of a seal that did not come together.
type collected struct {
	bytes   []byte
	missing int
}

// sealsText returns the lines for pieces and their vectors; "" if none is sealed. It returns an
// error unless the seals of each vector are those of its length.
func sealsText(pieces []Piece) (string, []*Vector, error) {
	keys := []string{}
	for _, p := range pieces {
		if p.Len() > 0 {
			keys = append(keys, p.key())
		}
	}
	slices.Sort(keys)
	var vectors []*Vector
	numbers, lengths := map[*Vector][]string{}, map[*Vector]int{}
	for _, p := range pieces {
		if p.Vector == nil || p.Len() == 0 {
			continue
		}
		if numbers[p.Vector] == nil {
			vectors = append(vectors, p.Vector)
		}
		number, _ := slices.BinarySearch(keys, p.key())
		numbers[p.Vector] = append(numbers[p.Vector], strconv.Itoa(number))
		lengths[p.Vector] += p.Len()
	}
	var text strings.Builder
	for _, v := range vectors {
		if n := lengths[v]; len(v.Seals) != seals.Count(n) || strings.Contains(v.Name, "\n") {
			return "", nil, fmt.Errorf("vector %q: %d seals for %d elements", v.Name, len(v.Seals), n)
		}
		fmt.Fprintf(&text, "%016x %s %s\n", seals.Digest(v.Seals), strings.Join(numbers[v], ","), v.Name)
	}
	return text.String(), vectors, nil
}

// newSealing reads the seals of a shard from its header. It returns nil if there are none.
func newSealing(f *safetensors.File) (*sealing, error) {
	text := f.Metadata()[sealsKey]
	if text == "" {
		return nil, nil
	}
	s, tensors := &sealing{partial: map[partialBlock]*collected{}}, f.Tensors()
	for line := range strings.Lines(text) {
		if err := s.add(strings.TrimSuffix(line, "\n"), tensors); err != nil {
			return nil, fmt.Errorf("seals %.100q: %w", line, err)
		}
	}
	slices.SortFunc(s.spans, func(a, b sealedSpan) int { return int(min(1, max(-1, a.begin-b.begin))) })
	return s, nil
}

// add adds the vector that a line describes. It takes its pieces out of tensors.
func (s *sealing) add(line string, tensors []safetensors.Info) (err error) {
	parts := strings.SplitN(line, " ", 3)
	if len(parts) != 3 {
		return errors.New("expected DIGEST NUMBERS NAME")
	}
	v := sealedVector{name: parts[2]}
	if v.digest, err = strconv.ParseUint(parts[0], 16, 64); err != nil {
		return err
	}
	for text := range strings.SplitSeq(parts[1], ",") {
		number, err := strconv.Atoi(text)
		if err != nil || number < 0 || number >= len(tensors) {
			return fmt.Errorf("piece %.20q of %d", text, len(tensors))
		}
		info := tensors[number]
		tensors[number] = safetensors.Info{Name: info.Name, DType: "taken"}
		size, ok := sizeOf(info.DType)
		if !ok || v.size != 0 && v.size != size {
			return fmt.Errorf("%q is %s: the pieces of a vector have one type, F32 or BF16", info.Name, info.DType)
		}
		v.size = size
		s.spans = append(s.spans, sealedSpan{info.Offset, info.Offset + info.Size, len(s.vectors), v.length})
		v.length += info.Size
	}
	v.found = make([]uint64, seals.Count(int(v.length/v.size)))
	s.vectors = append(s.vectors, v)
	return nil
}

// see adds the bytes of the file from position at on.
func (s *sealing) see(at int64, p []byte) {
	if s == nil {
		return
	}
	next := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].end > at })
	for end := at + int64(len(p)); next < len(s.spans) && s.spans[next].begin < end; next++ {
		span := s.spans[next]
		lo, hi := max(at, span.begin), min(end, span.end)
		s.seeVector(span.vector, span.at+lo-span.begin, p[lo-at:hi-at])
	}
}

// seeVector adds the bytes of a vector from position at on.
func (s *sealing) seeVector(vector int, at int64, p []byte) {
	v := &s.vectors[vector]
	for size := v.blockBytes(); len(p) > 0; {
		block := at / size
		begin := block * size
		length := min(size, v.length-begin)
		n := min(int64(len(p)), begin+length-at)
		if n == length {
			v.found[block] = seals.Of(p[:n])
		} else {
			s.collect(partialBlock{vector, block}, int(length), int(at-begin), p[:n])
		}
		at, p = at+n, p[n:]
	}
}

// collect adds a part of a block of the given length.
func (s *sealing) collect(b partialBlock, length, at int, p []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c := s.partial[b]
	if c == nil {
		c = &collected{make([]byte, length), length}
		s.partial[b] = c
	}
	c.missing -= copy(c.bytes[at:], p)
	if c.missing == 0 {
		s.vectors[b.vector].found[b.block] = seals.Of(c.bytes)
		delete(s.partial, b)
	}
}

// match returns an error unless all bytes that were seen give the digests of training.
func (s *sealing) match(name string) error {
	if s == nil {
		return nil
	}
	for _, v := range s.vectors {
		if have := seals.Digest(v.found); have != v.digest {
			return damagef("%s: %s is not what training has saved: its seals have the digest %016x, training had %016x", name, v.name, have, v.digest)
		}
	}
	return nil
}

// shardWriter passes a shard on to its file and computes the seals of what the file has taken.
type shardWriter struct {
	to     *chunker
	pieces []Piece
	header []byte // as the encoder made it
	same   bool   // the file has taken this header
	seals  *sealing
	at     int64
}

// Write implements [io.Writer]. The encoder first writes the whole header.
func (w *shardWriter) Write(p []byte) (int, error) {
	if w.header == nil {
		w.header, w.same = bytes.Clone(p), true
		if err := w.readHeader(); err != nil {
			return 0, fmt.Errorf("%w: the header of the shard: %w", ErrChanged, err)
		}
		w.to.wrote = w.wrote
	}
	return w.to.Write(p)
}

// readHeader reads the header as Open does. It returns an error unless it has
// every piece.
func (w *shardWriter) readHeader() error {
	size := int64(len(w.header))
	for _, p := range w.pieces {
		size += int64(len(p.Bytes()))
	}
	f, err := safetensors.NewFile(w.to.Name, bytes.NewReader(w.header), size)
	if err != nil {
		return err
	}
	for _, p := range w.pieces {
		if info, ok := f.Info(p.key()); p.Len() > 0 && (!ok || info.DType != p.dtype() || info.Size != int64(len(p.Bytes()))) {
			return fmt.Errorf("no %q of %d elements", p.key(), p.Len())
		}
	}
	w.seals, err = newSealing(f)
	return err
}

// wrote is called when the file has taken p. What changes in memory until then is found, whether it
// has reached the file or not.
func (w *shardWriter) wrote(p []byte) {
	if rest := int64(len(w.header)) - w.at; rest > 0 {
		n := min(rest, int64(len(p)))
		w.same = w.same && bytes.Equal(w.header[w.at:][:n], p[:n])
	}
	w.seals.see(w.at, p)
	w.at += int64(len(p))
}

// differing returns the seals that differ from those of training.
func (w *shardWriter) differing(vectors []*Vector) (all []partialBlock) {
	for i, v := range vectors {
		for block, s := range w.seals.vectors[i].found {
			if s != v.Seals[block] {
				all = append(all, partialBlock{i, int64(block)})
			}
		}
	}
	return all
}

// mostWrites is how often a shard is written until it is what training has.
const mostWrites = 3

// writeSealed writes a shard durably. If what was written differs from its seals, it restores the
// pieces, or the seals, and writes the shard again.
func (w *Writer) writeSealed(rank int, pieces []Piece, tensors []safetensors.Tensor) (file, error) {
	name := shardName(rank, w.ranks)
	for try := 1; ; try++ {
		text, vectors, err := sealsText(pieces)
		if err != nil {
			return file{}, err
		}
		origin := map[string]string{"step": strconv.FormatInt(w.step, 10), "rank": strconv.Itoa(rank), "ranks": strconv.Itoa(w.ranks)}
		if text != "" {
			origin[sealsKey] = text
		}
		var differing []partialBlock
		f, err := writeFile(w.files, w.temp, name, func(out *chunker) error {
			s := &shardWriter{to: out, pieces: pieces}
			if err := safetensors.EncodeAligned(s, tensors, origin, directAlignment); err != nil {
				return err
			}
			if err := out.flush(); err != nil || text == "" {
				return err
			}
			if differing = s.differing(vectors); len(differing) > 0 || !s.same {
				return fmt.Errorf("%s was written %d times and %w each time", name, try, ErrChanged)
			}
			return nil
		})
		if !errors.Is(err, ErrChanged) || try == mostWrites {
			return f, err
		}
		if err := w.restore(pieces, vectors, differing); err != nil {
			return f, err
		}
	}
}

// restore makes pieces what their seals say, and tells what has changed.
func (w *Writer) restore(pieces []Piece, vectors []*Vector, differing []partialBlock) error {
	told := map[Change]bool{}
	if len(differing) == 0 {
		told[Change{Vector: "the header"}] = true
	}
	for _, b := range differing {
		v := vectors[b.vector]
		ok, lost := v.restore(pieces, int(b.block))
		if lost {
			return fmt.Errorf("%s %w in memory", v.Name, ErrChanged)
		}
		told[Change{v.Name, !ok}] = true
	}
	for c := range told {
		if w.Changed != nil {
			w.Changed(c)
		}
	}
	return nil
}

// restore compares the elements of a seal with it, and restores what it can: see [seals.Check].
func (v *Vector) restore(pieces []Piece, block int) (ok, lost bool) {
	each := func(f func(memory []byte)) { // the parts of the block in turn
		at := 0
		for _, p := range pieces {
			if p.Vector != v || p.Len() == 0 {
				continue
			}
			memory := p.Bytes()
			size := len(memory) / p.Len()
			lo, hi := max(block*seals.Len-at, 0), min((block+1)*seals.Len-at, p.Len())
			if lo < hi {
				f(memory[lo*size : hi*size])
			}
			at += p.Len()
		}
	}
	var whole []byte
	each(func(memory []byte) { whole = append(whole, memory...) })
	if ok, lost = seals.Check(whole, &v.Seals[block]); ok || lost {
		return ok, lost
	}
	each(func(memory []byte) { whole = whole[copy(memory, whole):] })
	return false, false
}

// Sealed reports whether every piece is covered by seals that training had of it.
func (r *Reader) Sealed() bool {
	for rank, s := range r.seals {
		if s == nil && len(r.shards[rank].Tensors()) > 0 || s != nil && len(s.spans) < len(r.shards[rank].Tensors()) {
			return false
		}
	}
	return true
}

// Differing compares the seals of pieces, which are in memory, with those of the pieces of a rank
// that the checkpoint holds. ok is false if these are other pieces, or are not sealed. Otherwise
// names are those of the vectors that differ.
func (r *Reader) Differing(rank int, pieces []Piece) (names []string, ok bool) {
	if rank >= len(r.seals) || r.seals[rank] == nil {
		return nil, false
	}
	text, _, err := sealsText(pieces)
	n := 0
	for _, p := range pieces {
		if p.Len() == 0 {
			continue
		}
		info, found := r.shards[rank].Info(p.key())
		if !found || info.DType != p.dtype() || info.Size != int64(len(p.Bytes())) {
			return nil, false
		}
		n++
	}
	saved := r.shards[rank].Metadata()[sealsKey]
	if err != nil || n != len(r.shards[rank].Tensors()) || strings.Count(text, "\n") != strings.Count(saved, "\n") {
		return nil, false
	}
	for text != "" {
		var a, b string
		a, text, _ = strings.Cut(text, "\n")
		b, saved, _ = strings.Cut(saved, "\n")
		digest, what, _ := strings.Cut(a, " ")
		other, same, _ := strings.Cut(b, " ")
		if what != same {
			return nil, false
		}
		if _, name, _ := strings.Cut(what, " "); digest != other {
			names = append(names, name)
		}
	}
	return names, true
}
