// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/record"
)

const maxRecord = 64 << 20 // bytes

// recordFormat returns the format of the record file.
func recordFormat() record.Format {
	return record.Format{Magic: "nodeagent-devices", Version: "1", Content: "devices"}
}

// document is the content of the record file.
type document struct {
	Resources []resourceRecord `json:"resources"`
	Pods      []podRecord      `json:"pods"`
}

type resourceRecord struct {
	Name     string   `json:"name"`
	Sockets  []string `json:"sockets,omitempty"`
	PreStart bool     `json:"preStart,omitempty"`
}

type podRecord struct {
	UID       string        `json:"uid"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	Claims    []claimRecord `json:"claims,omitempty"` // empty: the pod runs, and holds no devices
}

type claimRecord struct {
	Container string           `json:"container"`
	Kind      ContainerKind    `json:"kind,omitempty"`
	Resource  string           `json:"resource"`
	Devices   []recordedDevice `json:"devices"`
	Response  *Response        `json:"response,omitempty"`
}

type recordedDevice struct {
	ID    string `json:"id"`
	Nodes Mask   `json:"nodes,omitempty"`
}

// encode returns the content of the record file: a header with the checksum, and the JSON document.
func (d *document) encode() ([]byte, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return recordFormat().Encode(doc), nil
}

// decodeRecord decodes the content of a record file. An unknown version or a wrong checksum is an error.
func decodeRecord(data []byte) (*document, error) {
	doc, err := recordFormat().Decode(data)
	if err != nil {
		return nil, err
	}
	d := &document{}
	if err := json.Unmarshal(doc, d); err != nil {
		return nil, err
	}
	return d, nil
}

// loadRecord restores the state from the record. It renames a damaged record. If there is no record, it calls loadPrevious.
func (a *Allocator) loadRecord() error {
	path := a.opts.Record
	if path == "" {
		a.lost = true
		return a.loadPrevious()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("device: create the directory of the record: %w", err)
	}
	if err := atomicfile.Clean(path); err != nil {
		return fmt.Errorf("device: clean up beside the record: %w", err)
	}
	data, err := plainfile.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		a.lost = true
		return a.loadPrevious()
	}
	if err != nil {
		return fmt.Errorf("device: read the record: %w", err)
	}
	rec, err := decodeRecord(data)
	if err == nil {
		err = a.restoreRecord(rec)
	}
	if err == nil {
		return nil
	}
	a.lost = true
	a.state.resources, a.state.pods = map[string]*resource{}, map[string]*holding{}
	aside := path + ".damaged"
	a.reportError(fmt.Errorf("device: record %s is damaged, and renamed to %s; the containers of the runtime say who holds devices: %w", path, aside, err))
	return os.Rename(path, aside)
}

// loadPrevious adds the claims and resources of another agent, from Options.Previous. It reports errors to the log and Hooks.Error.
func (a *Allocator) loadPrevious() error {
	if a.opts.Previous == nil {
		return nil
	}
	previous, err := a.opts.Previous()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// The containers of a kubelet have no annotation of ours, but losing its checkpoint stops no pod.
		a.reportError(fmt.Errorf("device: read what another agent has left: %w", err))
		return nil
	}
	now := time.Now()
	for _, name := range previous.Resources {
		a.addResource(name, now).markRegistered()
	}
	byPod := map[string][]Claim{}
	for _, c := range previous.Claims {
		byPod[c.PodUID] = append(byPod[c.PodUID], c)
	}
	for uid, claims := range byPod {
		h := &holding{pod: Pod{UID: uid}, complete: true}
		for _, c := range claims {
			h.addClaim(c, Regular)
		}
		if err := a.adoptPod(h, now); err != nil {
			a.reportError(fmt.Errorf("device: pod %s of another agent: %w", uid, err))
		}
	}
	return nil
}

// addResource returns the resource of this name. It adds a new resource without a plugin.
func (a *Allocator) addResource(name string, now time.Time) *resource {
	if a.state.resources[name] == nil {
		a.state.resources[name] = newResource(name, now)
	}
	return a.state.resources[name]
}

// addClaim adds a claim of one container to the restored pod h. kind is the kind of the container.
func (h *holding) addClaim(c Claim, kind ContainerKind) {
	at := slices.IndexFunc(h.pod.Containers, func(known Container) bool { return known.Name == c.Container })
	if at < 0 {
		at = len(h.pod.Containers)
		h.pod.Containers = append(h.pod.Containers, Container{Name: c.Container, Kind: kind, Limits: map[string]int{}})
	}
	h.pod.Containers[at].Limits[c.Resource] = len(c.Devices)
	n := need{container: at, resource: c.Resource, count: len(c.Devices)}
	h.needs = append(h.needs, n)
	h.claims = append(h.claims, claim{need: n, devices: c.Devices, response: c.Response})
}

// adoptPod adds a restored pod to the state. It returns an error for a device that another pod or container holds too; the pod is added nevertheless.
func (a *Allocator) adoptPod(h *holding, now time.Time) (err error) {
	for i := range h.claims {
		r := a.addResource(h.claims[i].resource, now)
		for _, d := range h.claims[i].devices {
			if r.inUse[d.ID] && err == nil {
				err = fmt.Errorf("device %q of resource %s is held by another pod or container, too", d.ID, r.name)
			}
		}
	}
	a.state.markInUse(h.claims)
	a.state.pods[h.pod.UID] = h
	return err
}

// restoreRecord fills the state from a record. A pod without UID, or one that is recorded twice, is an error.
func (a *Allocator) restoreRecord(rec *document) error {
	now := time.Now()
	for _, r := range rec.Resources {
		known := a.addResource(r.Name, now)
		known.markRegistered()
		known.sockets, known.options.PreStart = r.Sockets, r.PreStart
	}
	for _, p := range rec.Pods {
		h := &holding{pod: Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name}, complete: true}
		if p.UID == "" || a.state.pods[p.UID] != nil {
			return fmt.Errorf("pod %q has no UID or is recorded twice", p.UID)
		}
		for _, c := range p.Claims {
			devices := make([]Device, len(c.Devices))
			for i, d := range c.Devices {
				devices[i] = Device{ID: d.ID, Nodes: d.Nodes}
			}
			h.addClaim(Claim{PodUID: p.UID, Container: c.Container, Resource: c.Resource, Devices: devices, Response: c.Response}, c.Kind)
		}
		_ = a.adoptPod(h, now) // init containers share devices with later containers
	}
	return nil
}

// saveRecord writes the record, and exports the claims. Concurrent calls write one after the other, each with the newest state.
// It reports an error of the export.
func (a *Allocator) saveRecord() error {
	a.saving.Lock()
	if err := a.writeRecord(); err != nil {
		a.saving.Unlock()
		a.mu.Lock()
		a.requestExport(time.Now())
		a.mu.Unlock()
		return err
	}
	err := a.exportClaims()
	a.saving.Unlock()
	if err != nil {
		a.reportError(err)
	}
	return nil
}

// writeRecord writes the record. It does not wait for the disk: the record survives a kill of the agent, and a power failure ends the containers
// whose devices it lists. The caller holds a.saving.
func (a *Allocator) writeRecord() error {
	if a.opts.Record == "" {
		return nil
	}
	a.mu.Lock()
	rec := a.snapshot()
	a.unsaved = false
	a.mu.Unlock()
	data, err := rec.encode()
	if err == nil && len(data) > maxRecord {
		err = fmt.Errorf("it has %d bytes, more than %d", len(data), maxRecord)
	}
	if err == nil {
		err = atomicfile.Replace(a.opts.Record, data, 0o600)
	}
	if err != nil {
		a.mu.Lock()
		a.unsaved = true
		a.mu.Unlock()
		return fmt.Errorf("write the record of devices: %w", err)
	}
	return nil
}

// snapshot returns the record of the state. The caller holds a.mu.
func (a *Allocator) snapshot() *document {
	rec := &document{}
	for _, name := range slices.Sorted(maps.Keys(a.state.resources)) {
		if r := a.state.resources[name]; r.registered {
			rec.Resources = append(rec.Resources, resourceRecord{Name: name, Sockets: slices.Clone(r.sockets), PreStart: r.options.PreStart})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.state.pods)) {
		h := a.state.pods[uid]
		if !h.complete {
			continue
		}
		p := podRecord{UID: uid, Namespace: h.pod.Namespace, Name: h.pod.Name}
		for i := range h.claims {
			c := &h.claims[i]
			devices := make([]recordedDevice, len(c.devices))
			for j, d := range c.devices {
				devices[j] = recordedDevice{ID: d.ID, Nodes: d.Nodes}
			}
			container := &h.pod.Containers[c.container]
			p.Claims = append(p.Claims, claimRecord{
				Container: container.Name, Kind: container.Kind, Resource: c.resource, Devices: devices, Response: c.response,
			})
		}
		rec.Pods = append(rec.Pods, p)
	}
	return rec
}

// reportError passes an error that no call returns to the log and to Hooks.Error.
func (a *Allocator) reportError(err error) {
	a.opts.Logger.Error("devices", "error", err)
	if hook := a.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}
