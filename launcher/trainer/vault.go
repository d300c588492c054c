package trainer

// The vault of a rank: state that outlives its process, for healing.

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"spmoe/collective/heap"
	"spmoe/internal/fault"
	"spmoe/moe"
)

// stateVault keeps the state of the last two steps where it outlives the process of a rank: that of
// even steps in one half of its vault, that of odd ones in the other. The optimizer's state is
// made there; the rest, which is little, is copied at the end of a step. If a process dies, the
// one that takes its place goes on from the newest step that all ranks keep.
type stateVault struct {
	vault   heap.Vault
	states  [][]byte // memory of the optimizer's state, [2]; none where nothing outlives a process
	notes   [2][]byte
	begun   int  // the step after which this process began
	resumed bool // it began with a state that the vaults kept
}

// notes is what a vault holds with the optimizer's state.
type notes struct {
	Progress progress    `json:"progress"`
	Peak     float64     `json:"peak"` // of the machine, FLOP/s
	Biases   [][]float32 `json:"biases"`
	State    []uint64    `json:"state"` // checksums of the optimizer's state; none if it is not guarded
}

// notesHeader is the bytes in front of notes: their length and their CRC-32.
const notesHeader = 8

// notesBytes is room for notes, whose biases are given as numbers of up to some 12 digits.
func notesBytes(model moe.Config) int {
	return 64<<10 + 16*model.Experts*(model.MoELayers()+model.MTPLayers)
}

// keeperBytes is what the vault of a rank must hold for an optimizer's state of that many bytes.
func keeperBytes(model moe.Config, state int) int64 {
	return 2 * (int64(state) + int64(notesBytes(model)))
}

// newStateVault lays out the vault for an optimizer's state of that many bytes.
func newStateVault(vault heap.Vault, model moe.Config, state int) (*stateVault, error) {
	memory, k := vault.Memory(), &stateVault{vault: vault}
	if len(memory) == 0 {
		return k, nil
	}
	if need := keeperBytes(model, state); int64(len(memory)) < need {
		return nil, fmt.Errorf("the vault of a rank has %d bytes, its state takes %d", len(memory), need)
	}
	for range k.notes {
		k.states = append(k.states, memory[:state])
		memory = memory[state:]
	}
	for i := range k.notes {
		k.notes[i] = memory[:notesBytes(model)]
		memory = memory[notesBytes(model):]
	}
	return k, nil
}

// heals reports whether ranks that fail are replaced, and go on from what the vaults keep.
func (k *stateVault) heals() bool { return k.states != nil }

// keep completes the state of a step. From then on it is the one to go on from.
func (k *stateVault) keep(n notes) error {
	fault.Point(fault.BeforeKeep)
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	to := k.notes[n.Progress.Step%2]
	if len(text) > len(to)-notesHeader {
		return fmt.Errorf("the notes of step %d take %d bytes, there is room for %d", n.Progress.Step, len(text), len(to)-notesHeader)
	}
	binary.LittleEndian.PutUint32(to, uint32(len(text)))
	binary.LittleEndian.PutUint32(to[4:], crc32.ChecksumIEEE(text))
	copy(to[notesHeader:], text)
	fault.Point(fault.InKeep)
	k.vault.Keep(int64(n.Progress.Step))
	fault.Point(fault.AfterKeep)
	return nil
}

// recall returns the notes of a step that all ranks keep. If this rank has made another one since,
// that is forgotten.
func (k *stateVault) recall(step int64) (n notes, err error) {
	from := k.notes[step%2]
	length, sum := int(binary.LittleEndian.Uint32(from)), binary.LittleEndian.Uint32(from[4:])
	if length > len(from)-notesHeader {
		return n, fmt.Errorf("the notes of step %d are damaged: they have %d bytes of %d", step, length, len(from)-notesHeader)
	}
	text := from[notesHeader:][:length]
	if got := crc32.ChecksumIEEE(text); got != sum {
		return n, fmt.Errorf("the notes of step %d are damaged: their checksum is %#x, not %#x", step, got, sum)
	}
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("the notes of step %d are damaged: %w", step, err)
	}
	if int64(n.Progress.Step) != step {
		return n, fmt.Errorf("the notes of step %d are damaged: they are of step %d", step, n.Progress.Step)
	}
	k.vault.Keep(step)
	return n, nil
}

// forget drops the state after a step, which is damaged. The one before it is whole on all ranks if
// a step has been made since they began; otherwise the run starts over. ok is false if it cannot,
// because it goes on from a state that the vaults kept.
func (k *stateVault) forget(step int) (ok bool) {
	before := int64(step) - 1
	if step == k.begun {
		before = -1
	}
	if before < 0 && k.resumed {
		return false
	}
	k.vault.Keep(before)
	return true
}
