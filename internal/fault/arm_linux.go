package fault

// Executing orders and receiving them, through a named pipe in the folder of the test.

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Arm makes this process execute a [Setting]. It may be called once.
func Arm(setting string) error {
	order, folder, err := parseSetting(setting)
	if err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	i := &injector{folder: folder}
	if order != nil {
		i.give(*order)
	}
	if folder != "" {
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
			o, err := ParseOrder(lines.Text())
			if err != nil {
				panic(err)
			}
			i.give(o)
		}
	}()
	return nil
}

// note records that an order is about to be executed.
func (i *injector) note(o Order) {
	if i.folder == "" {
		return
	}
	file, err := os.OpenFile(notesOf(i.folder, os.Getpid()), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%d %v\n", time.Now().UnixNano(), o)
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
	case Sleep:
		time.Sleep(100 * time.Millisecond)
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
	_, err = fmt.Fprintf(pipe, "%v\n", o)
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
	when, what, _ := strings.Cut(lines[len(lines)-1], " ")
	nanoseconds, err := strconv.ParseInt(when, 10, 64)
	if err == nil {
		o, err = ParseOrder(what)
	}
	return time.Unix(0, nanoseconds), o, err == nil
}
