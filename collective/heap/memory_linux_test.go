package heap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func create(t testing.TB, ranks, control int, region int64) *os.File {
	t.Helper()
	file, err := Create(Whole(ranks), control, region, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func open(t testing.TB, file *os.File) *Heap {
	t.Helper()
	h, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// Two mappings lie at different addresses, and have the same at the same offset.
func TestMappings(t *testing.T) {
	const ranks, control, region = 3, 1000, 8192
	file := create(t, ranks, control, region)
	a, b := open(t, file), open(t, file)
	if a.base == b.base {
		t.Fatal("both mappings are at one address")
	}
	if !a.Shared() || b.Ranks() != ranks || len(b.Control()) != control {
		t.Errorf("shared %v, %d ranks, %d bytes of control", a.Shared(), b.Ranks(), len(b.Control()))
	}
	var offsets []int64
	for r := range ranks {
		p := a.Allocator(r).Allocate(100)
		offset, ok := a.Offset(unsafe.Pointer(&p[99]))
		if !ok {
			t.Fatalf("rank %d: memory of its allocator is not of the heap", r)
		}
		p[99] = byte(r + 1)
		if got := *(*byte)(b.At(offset)); got != byte(r+1) {
			t.Errorf("rank %d: the other mapping has %d at %d", r, got, offset)
		}
		if lo, ok := b.Offset(b.At(offset)); !ok || lo != offset {
			t.Errorf("offset %d there and back is %d", offset, lo)
		}
		offsets = append(offsets, offset)
	}
	for r := 1; r < ranks; r++ {
		if d := offsets[r] - offsets[r-1]; d != region {
			t.Errorf("regions are %d bytes apart", d)
		}
	}
	a.Control()[control-1] = 9
	if b.Control()[control-1] != 9 {
		t.Error("the other mapping has another control area")
	}
	b.SetState(2, Running)
	b.SetStep(2, 41)
	if a.StateOf(2) != Running || a.StepOf(2) != 41 || a.Process(2) != os.Getpid() {
		t.Errorf("rank 2 is in state %d at step %d, process %d", a.StateOf(2), a.StepOf(2), a.Process(2))
	}
	b.Fail(1, 0, "killed by signal 9")
	if f, ok := a.Failure(); !ok || f != (Failure{1, 0, "killed by signal 9"}) {
		t.Errorf("the other mapping has failure %+v %v", f, ok)
	}
}

func TestOffsetsOutside(t *testing.T) {
	h := open(t, create(t, 1, 0, 4096))
	own := new([16]byte)
	for name, p := range map[string]unsafe.Pointer{"Go's memory": unsafe.Pointer(own), "nil": nil, "the end": unsafe.Add(h.base, len(h.memory))} {
		if offset, ok := h.Offset(p); ok {
			t.Errorf("%s is in the heap, at %d", name, offset)
		}
	}
	for _, offset := range []int64{-1, int64(len(h.memory)), 1 << 62} {
		wantPanic(t, "offset", func() { h.At(offset) })
	}
}

// A rank parked in the kernel on its mapping is woken through another.
func TestAwaitMapped(t *testing.T) {
	file := create(t, 2, 0, 0)
	for _, c := range []struct{ spins, parks bool }{{spins: true}, {}, {parks: true}} {
		waits := open(t, file)
		waits.spins, waits.parks = c.spins, c.parks
		testAwait(t, waits, open(t, file))
	}
}

func TestCreateProtects(t *testing.T) {
	file := create(t, 2, 0, 4096)
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode is %o", mode)
	}
	for _, size := range []int64{0, info.Size() - 4096, info.Size() + 4096} {
		if err := file.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("resizing from %d to %d bytes: %v", info.Size(), size, err)
		}
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v", err)
	}
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a process started by chance would inherit the file: flags %#x, %v", flags, err)
	}
}

// Files that are no heaps, or not of this version, are refused in words.
func TestOpenRefuses(t *testing.T) {
	file := create(t, 2, 512, 4096)
	whole := make([]byte, sizeOf(2, 512, 4096, 0))
	if _, err := file.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	with := func(change func(h *header)) []byte {
		b := slices.Clone(whole)
		change((*header)(unsafe.Pointer(unsafe.SliceData(b))))
		return b
	}
	const notHeap, notVersion = "it is not a heap", "is not a heap of this version"
	for _, test := range []struct {
		name, want string
		data       []byte
	}{
		{"nothing", notHeap, nil},
		{"a text", notHeap, []byte("hello")},
		{"cut behind it", notVersion, whole[:len(whole)-1]},
		{"too long", notVersion, append(slices.Clone(whole), 0)},
		{"another version", notVersion, with(func(h *header) { h.magic++ })},
		{"one rank more", notVersion, with(func(h *header) { h.ranks++ })},
		{"ranks that overflow", notVersion, with(func(h *header) { h.ranks, h.region = h.ranks+1<<57, 0 })},
		{"negative control", notVersion, with(func(h *header) { h.control = -1 })},
		{"control that overflows", notVersion, with(func(h *header) { h.control = 1<<63 - 1 })},
		{"regions that overflow", notVersion, with(func(h *header) { h.ranks, h.region = 1<<8, 1<<56 })},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "heap")
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if h, err := Open(f); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, %v, want an error with %q", h, err, test.want)
			}
		})
	}
	closed := create(t, 1, 0, 0)
	closed.Close()
	if _, err := Open(closed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
	if _, err := Open(create(t, 1, 0, 1<<62)); err == nil || !strings.Contains(err.Error(), "mapping") {
		t.Errorf("a heap of 2^62 bytes: %v", err)
	}
}

// Whatever is allocated and freed, memory is aligned, zeroed, inside of the rank's region and
// overlaps nothing that is in use.
func TestAllocator(t *testing.T) {
	const region = 1 << 20
	rapid.Check(t, func(t *rapid.T) {
		file, err := Create(Whole(2), 0, region, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		h, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var used [][]byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			a := h.Allocator(1) // the same memory, whoever asks
			if len(used) > 0 && rapid.Bool().Draw(t, "frees") {
				i := rapid.IntRange(0, len(used)-1).Draw(t, "which")
				a.Free(used[i])
				used = slices.Delete(used, i, i+1)
				continue
			}
			b := a.Allocate(rapid.IntRange(0, 5000).Draw(t, "size"))
			if len(b) == 0 {
				continue
			}
			offset, ok := h.Offset(unsafe.Pointer(&b[0]))
			if lo := h.start + region; !ok || offset%64 != 0 || offset < lo || offset+int64(cap(b)) > lo+region {
				t.Fatalf("%d bytes at %d of a region at %d", len(b), offset, lo)
			}
			for i, v := range b[:cap(b)] {
				if v != 0 {
					t.Fatalf("byte %d of %d is %d", i, len(b), v)
				}
				b[:cap(b)][i] = byte(len(used) + 1)
			}
			used = append(used, b)
			for _, other := range used[:len(used)-1] {
				if p, q := uintptr(unsafe.Pointer(&other[0])), uintptr(unsafe.Pointer(&b[0])); p < q+uintptr(cap(b)) && q < p+uintptr(cap(other)) {
					t.Fatalf("%d bytes at %#x overlap %d at %#x", cap(other), p, cap(b), q)
				}
			}
		}
	})
}

func TestAllocatorReuses(t *testing.T) {
	h := open(t, create(t, 1, 0, 4096))
	a := h.Allocator(0)
	for i := range 100 { // many times what the region holds
		b := a.Allocate(3000)
		if slices.Max(b) != 0 {
			t.Fatalf("memory number %d is not zeroed", i)
		}
		b[0], b[2999] = 1, 1
		a.Free(b)
	}
	if b := a.Allocate(0); len(b) != 0 {
		t.Errorf("%d bytes", len(b))
	}
	b := a.Allocate(100)
	b[99] = 7
	if b = a.Reallocate(128, b); len(b) != 128 || b[99] != 7 {
		t.Errorf("%d bytes, %d", len(b), b[99])
	}
	if b = a.Reallocate(500, b); len(b) != 500 || b[99] != 7 || b[499] != 0 {
		t.Errorf("%d bytes, %d, %d", len(b), b[99], b[499])
	}
	wantPanic(t, "not of the heap", func() { a.Free(make([]byte, 64)) })
}

func TestAllocatorFull(t *testing.T) {
	h := open(t, create(t, 2, 0, 4096))
	a := h.Allocator(1)
	a.Allocate(1000)
	for _, size := range []int{3073, 4096, 1 << 40, 1<<63 - 1} {
		func() {
			defer func() {
				full, ok := recover().(*FullError)
				if !ok || *full != (FullError{Rank: 1, Region: 4096, Used: 1024, Asked: size}) || !strings.Contains(full.Error(), "larger heap") {
					t.Errorf("%d bytes: %v", size, full)
				}
			}()
			a.Allocate(size)
		}()
	}
	if b := a.Allocate(3072); len(b) != 3072 {
		t.Errorf("the rest has %d bytes", len(b))
	}
	if b := h.Allocator(0).Allocate(4096); len(b) != 4096 {
		t.Errorf("the other rank's region has %d bytes", len(b))
	}
}
