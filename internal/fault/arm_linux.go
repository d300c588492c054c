package fault

// Executing orders and receiving them, through a named pipe in the folder of the test.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Arm makes this process execute a [Setting]. It may be called once.
func Arm(text string) error {
	var s setting
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	i := &injector{folder: s.Folder}
	if s.Order != nil {
		i.give(*s.Order)
	}
	if s.Folder != "" {
		if err := i.listen(); err != nil {
			return fmt.Errorf("%s: %w", Variable, err)
		}
	}
	if !armed.CompareAndSwap(nil, i) {
		panic("fault: this process has been armed before")
	}
	return nil
}

func ordersOf(folder string, pid int) string {
	return filepath.Join(folder, fmt.Sprintf("%d.orders", pid))
}
func notesOf(folder string, pid int) string {
	return filepath.Join(folder, fmt.Sprintf("%d.notes", pid))
}

// listen receives orders until the process ends. Creating the pipe shows that it listens.
func (i *injector) listen() error {
	path := ordersOf(i.folder, os.Getpid())
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // for writing, too: a pipe with a writer never ends
	if err != nil {
		return err
	}
	go func() {
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			var o Order
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				panic(err)
			}
			i.give(o)
		}
	}()
	return nil
}

// executed is a line of a process's notes.
type executed struct {
	At    time.Time
	Order Order
}

// note records that an order is about to be executed.
func (i *injector) note(o Order) {
	if i.folder == "" {
		return
	}
	file, err := os.OpenFile(notesOf(i.folder, os.Getpid()), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, encode(executed{time.Now(), o}))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (i *injector) execute(o Order, s corruption) error {
	switch o.Action {
	case Kill:
		unix.Kill(os.Getpid(), unix.SIGKILL)
	case Stop:
		unix.Kill(os.Getpid(), unix.SIGSTOP)
	case Segv:
		page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			panic(err)
		}
		page[0] = 1
	case Exit0:
		os.Exit(0)
	case Exit1:
		os.Exit(1)
	case Panic:
		panic(fmt.Sprintf("fault: %v", o))
	case Loop:
		for work := 0; ; work++ {
		}
	case Slow:
		i.slow.Store(true)
	case NaN:
		s.nan()
	case Flip:
		s.flip()
	case Full:
		return unix.ENOSPC
	}
	return nil
}

// Give sends an order to an armed process. It fails unless the process already listens.
func Give(folder string, pid int, o Order) error {
	pipe, err := os.OpenFile(ordersOf(folder, pid), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(pipe, encode(o))
	return errors.Join(err, pipe.Close())
}

// Struck returns when a process last executed an order, and the order; ok is false if it has
// executed none.
func Struck(folder string, pid int) (at time.Time, o Order, ok bool) {
	text, err := os.ReadFile(notesOf(folder, pid))
	if err != nil {
		return at, o, false
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last executed
	err = json.Unmarshal([]byte(lines[len(lines)-1]), &last)
	return last.At, last.Order, err == nil
}
