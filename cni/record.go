// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

const (
	// recordKind is the format of a record.
	recordKind = "nodeagent.cni/v1"
	// recordSuffix ends the names of records.
	recordSuffix = ".json"
	// maxRecord is the most bytes of a record: configurations, and what plugins are told.
	maxRecord = 8 << 20
)

// record is what is on disk of the network of a sandbox. It is written before the first plugin runs, and has all that it
// takes to undo what they do.
type record struct {
	Kind        string             `json:"kind"`
	Sandbox     string             `json:"sandbox"`
	Namespace   string             `json:"namespace,omitempty"` // of the pod; it and the name are for people
	Name        string             `json:"name,omitempty"`
	Attachments []recordAttachment `json:"attachments"` // in the order of ADD
}

type recordAttachment struct {
	Network      string          `json:"network"`
	Interface    string          `json:"interface"`
	Config       json.RawMessage `json:"config"` // may hold secrets
	Args         [][2]string     `json:"args,omitempty"`
	Capabilities Capabilities    `json:"capabilities,omitempty"`
}

// newRecord returns the record of a pod that is attached to networks, as eth0 and so on.
func newRecord(p Pod, networks []*Network) (*record, error) {
	if err := checkID(p.SandboxID); err != nil {
		return nil, err
	}
	args, err := podArgs(p)
	if err != nil {
		return nil, err
	}
	caps, err := p.Capabilities()
	if err != nil {
		return nil, err
	}
	r := &record{Kind: recordKind, Sandbox: p.SandboxID, Namespace: p.Namespace, Name: p.Name}
	for i, n := range networks {
		r.Attachments = append(r.Attachments, recordAttachment{
			Network: n.Name, Interface: interfaceName(i), Config: n.configJSON(), Args: args, Capabilities: caps,
		})
	}
	return r, nil
}

// interfaceName returns the name of the interface in network number i of a pod.
func interfaceName(i int) string { return fmt.Sprintf("eth%d", i) }

// parseRecord reads the record of a sandbox.
func parseRecord(data []byte, sandbox string) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	switch {
	case r.Kind != recordKind:
		return nil, fmt.Errorf("kind: %.50q is not %q", r.Kind, recordKind)
	case r.Sandbox != sandbox:
		return nil, fmt.Errorf("sandbox: it is that of %.100q", r.Sandbox)
	}
	_, err := r.attachments("")
	return r, err
}

// attachments returns the networks of a sandbox with its attachments, in the order of ADD.
func (r *record) attachments(netns string) ([]networkAttachment, error) {
	var all []networkAttachment
	for i, a := range r.Attachments {
		n, err := ParseNetwork(a.Config)
		switch {
		case err != nil:
			return nil, fmt.Errorf("attachments[%d].config: %w", i, err)
		case n.Name != a.Network:
			return nil, fmt.Errorf("attachments[%d].network: %.100q is not that of the config", i, a.Network)
		case !validName.MatchString(a.Interface):
			return nil, fmt.Errorf("attachments[%d].interface: %.50q is no name", i, a.Interface)
		}
		all = append(all, networkAttachment{n, Attachment{
			ContainerID: r.Sandbox, Netns: netns, Interface: a.Interface, Args: a.Args, Capabilities: a.Capabilities,
		}})
	}
	return all, nil
}

// networkAttachment is an attachment with its network.
type networkAttachment struct {
	network    *Network
	attachment Attachment
}

// records are the records of sandboxes: a file each in a directory.
type records struct{ dir string }

func (s records) path(sandbox string) string { return filepath.Join(s.dir, sandbox+recordSuffix) }

// read returns the record of a sandbox. Its error is fs.ErrNotExist where there is none.
func (s records) read(sandbox string) (*record, error) {
	if err := checkID(sandbox); err != nil {
		return nil, err
	}
	data, err := plainfile.Read(s.path(sandbox), maxRecord)
	switch {
	case errors.Is(err, plainfile.ErrIrregular), errors.Is(err, plainfile.ErrTooLarge):
		return nil, &damagedError{s.path(sandbox), errors.Unwrap(err)}
	case err != nil:
		return nil, err
	}
	r, err := parseRecord(data, sandbox)
	if err != nil {
		return nil, &damagedError{s.path(sandbox), err}
	}
	return r, nil
}

// write keeps a record. It does not wait for the disk: leases of addresses are files that nobody waits for either.
func (s records) write(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("record of sandbox %s: %d bytes exceed the limit of %d", r.Sandbox, len(data), maxRecord)
	}
	return atomicfile.Replace(s.path(r.Sandbox), data, 0o600)
}

// remove removes a record; an absent one is success.
func (s records) remove(sandbox string) error {
	if err := os.Remove(s.path(sandbox)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list returns the sandboxes that have a record, sorted.
func (s records) list() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var sandboxes []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && e.Type().IsRegular() && checkID(id) == nil {
			sandboxes = append(sandboxes, id)
		}
	}
	return sandboxes, nil
}

// clean removes the temporary files of an agent that was killed while it wrote a record.
func (s records) clean() error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp") {
			errs = append(errs, os.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// damagedError says that a record cannot be read, and never will be.
type damagedError struct {
	file string
	err  error
}

// Error names the file.
func (e *damagedError) Error() string { return fmt.Sprintf("damaged record %s: %v", e.file, e.err) }

// Unwrap returns the cause.
func (e *damagedError) Unwrap() error { return e.err }
