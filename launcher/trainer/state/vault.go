package state

// The vault of a rank: state that survives its process, for recovery.

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"spmoe/collective/heap"
	"spmoe/internal/fault"
	"spmoe/moe"
)

// Vault stores the state of the last two steps so that it survives the process of a rank: even
// steps in one half of its vault, odd steps in the other. The optimizer's state is computed there;
// the rest, which is small, is copied at the end of a step. If a process dies, its replacement
// continues from the newest step that all ranks have stored.
type Vault struct {
	vault heap.Vault
	// memory of the optimizer's state, [2]; nil if nothing survives a process
	States  [][]byte
	notes   [2][]byte
	Begun   int  // the step after which this process began
	Resumed bool // it began with a state from the vaults
}

// Notes is what a vault holds in addition to the optimizer's state.
type Notes struct {
	Run      string      `json:"run"`
	Progress Progress    `json:"progress"`
	Peak     float64     `json:"peak"` // of the machine, FLOP/s
	Biases   [][]float32 `json:"biases"`
	// checksums of the state and of the biases; nil: they are not compared
	Sums []uint32 `json:"sums"`
}

// notesHeader is the size of the header of notes: their length and their CRC-32.
const notesHeader = 8

// notesBytes returns the size of notes, with biases as numbers of up to 12 digits.
func notesBytes(model moe.Config) int {
	return 64<<10 + 16*model.Experts*(model.MoELayers()+model.MTPLayers)
}

// VaultBytes returns the size of a vault for an optimizer's state of the given size.
func VaultBytes(model moe.Config, state int) int64 {
	return 2 * (int64(state) + int64(notesBytes(model)))
}

// NewVault lays out the vault for an optimizer's state of the given size.
func NewVault(vault heap.Vault, model moe.Config, state int) (*Vault, error) {
	memory, k := vault.Memory(), &Vault{vault: vault}
	if len(memory) == 0 {
		return k, nil
	}
	if need := VaultBytes(model, state); int64(len(memory)) < need {
		return nil, fmt.Errorf("the vault of a rank has %d bytes, but its state takes %d", len(memory), need)
	}
	for range k.notes {
		k.States = append(k.States, memory[:state])
		memory = memory[state:]
	}
	for i := range k.notes {
		k.notes[i] = memory[:notesBytes(model)]
		memory = memory[notesBytes(model):]
	}
	return k, nil
}

// Heals reports whether failed ranks are replaced and continue from the vaults.
func (k *Vault) Heals() bool { return k.States != nil }

// Store completes the state of a step, which becomes the newest one.
func (k *Vault) Store(n Notes) error {
	fault.Point(fault.BeforeKeep)
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	to := k.notes[n.Progress.Step%2]
	if len(text) > len(to)-notesHeader {
		return fmt.Errorf("the notes of step %d take %d bytes, but there is room for %d", n.Progress.Step, len(text), len(to)-notesHeader)
	}
	binary.LittleEndian.PutUint32(to, uint32(len(text)))
	binary.LittleEndian.PutUint32(to[4:], crc32.ChecksumIEEE(text))
	copy(to[notesHeader:], text)
	fault.Point(fault.InKeep)
	k.vault.Keep(int64(n.Progress.Step))
	fault.Point(fault.AfterKeep)
	return nil
}

// Recall returns the notes of a step that all ranks have stored. It drops a later state of this
// rank.
func (k *Vault) Recall(step int64) (n Notes, err error) {
	from := k.notes[step%2]
	length, sum := int(binary.LittleEndian.Uint32(from)), binary.LittleEndian.Uint32(from[4:])
	text := from[notesHeader:][:min(length, len(from)-notesHeader)]
	if crc32.ChecksumIEEE(text) != sum || json.Unmarshal(text, &n) != nil || int64(n.Progress.Step) != step {
		return n, fmt.Errorf("the notes of step %d are damaged: %d bytes with checksum %#x", step, length, sum)
	}
	n.Progress.Run = n.Run
	k.vault.Keep(step)
	return n, nil
}

// Return makes the ranks go back to the state after a step. If it is not the newest one, it must be
// the one before. A negative step, or one before this process began, makes them go back to the
// newest checkpoint, or start over if there is none.
func (k *Vault) Return(step int) {
	if step < k.Begun {
		step = -1
	}
	k.vault.Keep(int64(step))
}
