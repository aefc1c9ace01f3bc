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
	// recordSuffix is the file extension of records.
	recordSuffix = ".json"
	// maxRecord is the maximum size of a record with its configurations and capability values.
	maxRecord = 8 << 20
)

// record is the state on disk of a sandbox's network. It is written before the first plugin runs and has all data for DEL.
type record struct {
	Kind        string             `json:"kind"`
	Sandbox     string             `json:"sandbox"`
	Namespace   string             `json:"namespace,omitempty"` // of the pod, like the name for humans only
	Name        string             `json:"name,omitempty"`
	Attachments []recordAttachment `json:"attachments"` // in the order of ADD
}

type recordAttachment struct {
	Network      string          `json:"network"`
	Interface    string          `json:"interface"`
	Config       json.RawMessage `json:"config"` // may contain secrets
	Args         [][2]string     `json:"args,omitempty"`
	Capabilities Capabilities    `json:"capabilities,omitempty"`
}

// newRecord returns a record of pod with an attachment to each of the networks. The interfaces are named eth0, eth1 and so
// on.
func newRecord(pod Pod, networks []*Network) (*record, error) {
	if err := checkID(pod.SandboxID); err != nil {
		return nil, err
	}
	args, err := podArgs(pod)
	if err != nil {
		return nil, err
	}
	caps, err := pod.Capabilities()
	if err != nil {
		return nil, err
	}
	r := &record{Kind: recordKind, Sandbox: pod.SandboxID, Namespace: pod.Namespace, Name: pod.Name}
	for i, n := range networks {
		r.Attachments = append(r.Attachments, recordAttachment{
			Network: n.Name, Interface: interfaceName(i), Config: n.configJSON(), Args: args, Capabilities: caps,
		})
	}
	return r, nil
}

// interfaceName returns the name of a pod's interface in the pod's network with the index i: eth0 for the first network.
func interfaceName(i int) string { return fmt.Sprintf("eth%d", i) }

// parseRecord parses the content of a sandbox's record file. It returns an error if the record is invalid, or is the record
// of another sandbox.
func parseRecord(data []byte, sandbox string) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	switch {
	case r.Kind != recordKind:
		return nil, fmt.Errorf("kind: %.50q is not %q", r.Kind, recordKind)
	case r.Sandbox != sandbox:
		return nil, fmt.Errorf("sandbox: record is of %.100q", r.Sandbox)
	}
	_, err := r.parseAttachments("")
	return r, err
}

// parseAttachments returns the recorded attachments in the order of ADD. netns is empty if the namespace was removed.
func (r *record) parseAttachments(netns string) ([]networkAttachment, error) {
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

// recordDir is a directory with a record file for each sandbox.
type recordDir struct{ dir string }

func (s recordDir) recordPath(sandbox string) string {
	return filepath.Join(s.dir, sandbox+recordSuffix)
}

// readRecord reads the record of a sandbox. If there is none, the error wraps fs.ErrNotExist.
func (s recordDir) readRecord(sandbox string) (*record, error) {
	if err := checkID(sandbox); err != nil {
		return nil, err
	}
	data, err := plainfile.Read(s.recordPath(sandbox), maxRecord)
	switch {
	case errors.Is(err, plainfile.ErrIrregular), errors.Is(err, plainfile.ErrTooLarge):
		return nil, &damagedError{s.recordPath(sandbox), errors.Unwrap(err)}
	case err != nil:
		return nil, err
	}
	r, err := parseRecord(data, sandbox)
	if err != nil {
		return nil, &damagedError{s.recordPath(sandbox), err}
	}
	return r, nil
}

// writeRecord writes rec to its file. It does not sync the file to disk, because IPAM plugins do not sync their leases
// either.
func (s recordDir) writeRecord(rec *record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("record of sandbox %s: %d bytes exceed the limit of %d", rec.Sandbox, len(data), maxRecord)
	}
	return atomicfile.Replace(s.recordPath(rec.Sandbox), data, 0o600)
}

// removeRecord removes the record of a sandbox. A missing record is no error.
func (s recordDir) removeRecord(sandbox string) error {
	if err := os.Remove(s.recordPath(sandbox)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// listSandboxes returns the sorted IDs of the sandboxes with a record.
func (s recordDir) listSandboxes() ([]string, error) {
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

// removeTemporary removes temporary files. They remain if an agent is killed while it writes a record.
func (s recordDir) removeTemporary() error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp") {
			errs = append(errs, os.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// damagedError means that a record is damaged and can never be read.
type damagedError struct {
	file string
	err  error
}

// Error returns the text of the error: the path of the record file and the cause.
func (e *damagedError) Error() string { return fmt.Sprintf("damaged record %s: %v", e.file, e.err) }

// Unwrap returns the cause.
func (e *damagedError) Unwrap() error { return e.err }
