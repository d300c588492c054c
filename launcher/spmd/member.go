package spmd

// A rank in a process of its own.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spmoe/collective"
	"spmoe/collective/heap"
	"spmoe/internal/fault"
)

// What a launcher tells the process of a rank: its number, -1 for a spare; the launcher's process;
// the processors of all ranks; the first generation that it takes part in; and whether failures are
// healed. The heap is its file 3. A spare reads from file 4 which rank it replaces. File 5 is
// Processes.Text.
const (
	rankVariable = "SPMOE_RANK"
	rankFormat   = "%d of launcher %d on %d cores from generation %d, healing %t"
	heapFile     = 3
	orderFile    = 4
	orderFormat  = "rank %d from generation %d\n"
	maxCores     = 1 << 16
)

// Member is this process as one rank of a job of processes.
type Member struct {
	Rank       int // -1 in a spare that was not called yet
	cores      int
	heap       *heap.Heap
	limits     collective.Limits
	orders     *os.File // for a spare
	generation uint32   // the first that it may take part in
	late       bool
	heals      bool
}

// Joined returns the role of this process in a job of processes. It returns nil if no launcher has
// started it as a rank.
func Joined() (*Member, error) {
	text, ok := os.LookupEnv(rankVariable)
	if !ok {
		return nil, nil
	}
	m := &Member{}
	var launcher int
	_, err := fmt.Sscanf(text, rankFormat, &m.Rank, &launcher, &m.cores, &m.generation, &m.heals)
	if err != nil || m.cores < 1 || m.cores > maxCores || fmt.Sprintf(rankFormat, m.Rank, launcher, m.cores, m.generation, m.heals) != text {
		return nil, fmt.Errorf("%s is %q: only launcher --ranks process sets it: unset it", rankVariable, text)
	}
	if os.Getppid() != launcher {
		return nil, fmt.Errorf("the launcher of rank %d, process %d, has gone", m.Rank, launcher)
	}
	offerToOOMKiller(os.Getpid(), launcher) // the launcher does the same, perhaps later
	if m.heap, err = heap.Open(os.NewFile(heapFile, "heap")); err != nil {
		return nil, err
	}
	if m.Rank < -1 || m.Rank >= m.heap.Ranks() {
		return nil, fmt.Errorf("%s is %q, but the heap is for %d ranks: only launcher --ranks process sets it: unset it", rankVariable, text, m.heap.Ranks())
	}
	if setting, ok := os.LookupEnv(fault.Variable); ok {
		if err := fault.Arm(setting); err != nil {
			return nil, err
		}
	}
	m.late = m.generation > 0
	if m.Rank < 0 {
		m.late, m.orders = true, os.NewFile(orderFile, "orders")
	}
	return m, nil
}

// rankScore is added to the launcher's oom_score_adj for its ranks. The kernel kills the process
// with the highest score; 1000 is the maximum.
const rankScore, mostScore = 500, 1000

// offerToOOMKiller makes the kernel prefer a rank's process to its launcher when memory runs out. A
// system that does not allow it is no failure.
func offerToOOMKiller(pid, launcher int) {
	own, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", launcher))
	score, _ := strconv.Atoi(strings.TrimSpace(string(own)))
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(score+rankScore, mostScore))), 0)
}

// Context returns a context that also ends when the launcher asks all ranks to stop. Its cause is
// an [Interruption] then.
func (m *Member) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	go func() { cancel(Interruption{syscall.Signal(m.heap.AwaitStop())}) }()
	return ctx
}

// Number implements [Rank].
func (m *Member) Number() int { return m.Rank }

// SetLimits implements [Rank].
func (m *Member) SetLimits(l collective.Limits) { m.limits = l }

// Ranks implements [World].
func (m *Member) Ranks() int { return m.heap.Ranks() }

// Cores implements [World].
func (m *Member) Cores() int { return m.cores }

// Here implements [World].
func (m *Member) Here() int { return 1 }

// Leads implements [World].
func (m *Member) Leads() bool { return m.Rank == 0 }

// Late implements [World].
func (m *Member) Late() bool { return m.late }

// AwaitRank implements [Rank].
func (m *Member) AwaitRank() error {
	if m.orders == nil {
		return nil
	}
	text := make([]byte, 64)
	n, err := m.orders.Read(text)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == 0 {
		return errors.New("the launcher has gone") // which ends this process in a moment, too
	}
	_, err = fmt.Sscanf(string(text[:n]), orderFormat, &m.Rank, &m.generation)
	return err
}

// Run implements [World]. If failures are healed, it runs body again, with a new communicator, each
// time that a rank has failed and was replaced; body continues from the vaults. Run returns when
// all ranks have finished body, because any of them may be needed until then.
func (m *Member) Run(body func(c *collective.Comm) error) error {
	for {
		if m.generation > m.heap.Generation() {
			fault.Point(fault.BeforePark)
			m.heap.Park(m.Rank, m.generation)
			fault.Point(fault.AfterPark)
		}
		fault.Point(fault.BeforeJoin)
		w, err := collective.Join(m.heap, m.Rank)
		if err != nil {
			return err
		}
		w.SetLimits(m.limits)
		fault.Point(fault.AfterJoin)
		if !m.heals {
			w.ContainPanics()
			return w.Run(body)
		}
		if err = w.Run(body); err == nil { // a panic is a crash like any other: it must end the process, not the job
			fault.Point(fault.InLeave)
			err = m.leave()
			fault.Point(fault.AfterLeave)
		}
		if f, failed := m.heap.Failure(); err == nil || !failed || f.Rank == m.Rank {
			return err
		}
		m.generation = m.heap.Generation() + 1
	}
}

// leave waits until all ranks have finished, or one has failed. One that takes longer than the
// limit has failed.
func (m *Member) leave() error {
	if limit := m.limits.Wait; limit > 0 {
		defer time.AfterFunc(limit, func() {
			if r := m.heap.Unfinished(); r >= 0 {
				m.heap.Fail(r, m.Rank, fmt.Sprintf("it has not ended within %v after rank %d had", limit, m.Rank))
			}
		}).Stop()
	}
	m.heap.Await(m.Rank, nil, func() bool { return m.heap.Failed() || m.heap.AllFinished() })
	if f, failed := m.heap.Failure(); failed && !m.heap.AllFinished() {
		return fmt.Errorf("rank %d failed: %s", f.Rank, f.Text)
	}
	return nil
}

// Abort declares that this rank, and with it the job, has failed outside Run. If ranks are
// replaced, it only ends the process, because the next one may succeed.
func (m *Member) Abort(err error) {
	if !m.late {
		m.heap.Fail(m.Rank, m.Rank, err.Error())
	}
}
