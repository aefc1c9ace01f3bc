// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// SubPathDir is the directory of mounted paths within volumes, below the directory of a pod.
const SubPathDir = "volume-subpaths"

// The limits of a record.
const (
	maxRecord = 4 << 20  // bytes that are written
	maxRead   = 32 << 20 // bytes that are read: earlier versions wrote more than maxRecord
	maxUIDs   = 100_000  // directories below the root
	MaxLabel  = 4 << 10  // bytes of an SELinux label
)

const (
	recordName    = "volumes.json"
	recordVersion = 1
)

// Pod is the record of the volumes of a pod: a file in the directory of the pod.
type Pod struct {
	Version int      `json:"version"`
	UID     string   `json:"uid"`
	Name    string   `json:"pod"` // namespace/name
	Volumes []Volume `json:"volumes"`
}

// Volume is the record of one volume, written before its set-up.
type Volume struct {
	Name   string   `json:"name"`
	Also   []string `json:"also,omitempty"` // other names of it in the pod, which lists one claim several times
	Plugin string   `json:"plugin"`
	Dir    string   `json:"dir"` // below the directory of the pod
	Block  bool     `json:"block,omitempty"`
	Device *Device  `json:"device,omitempty"`
	// SELinuxLabel is what it is mounted with, whatever its driver says later; empty: with none.
	SELinuxLabel string `json:"seLinuxLabel,omitempty"`
	// Claim and PV are the claim at the first set-up, trimmed by claim.Trim.
	Claim *corev1.PersistentVolumeClaim `json:"claim,omitempty"`
	PV    *corev1.PersistentVolume      `json:"persistentVolume,omitempty"`
}

// Device is what volumes of several pods share: see the type of that name in package volume.
type Device struct {
	Name       string            `json:"name"`
	Dir        string            `json:"dir,omitempty"`
	MapDir     string            `json:"mapDir,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	Attachable bool              `json:"attachable,omitempty"`
}

// Spec returns the name of a volume on disk.
func (v *Volume) Spec() string { return filepath.Base(v.Dir) }

// CheckSame returns an error where a volume is another one than that which is recorded.
func (v *Volume) CheckSame(current Volume) error {
	switch {
	case current.Plugin != v.Plugin || current.Dir != v.Dir:
		return fmt.Errorf("it is %s now, and was set up as %s", current.Dir, v.Dir)
	case (current.Device == nil) != (v.Device == nil) || current.Device != nil && current.Device.Name != v.Device.Name:
		return errors.New("its device is another one than that which was staged")
	}
	return nil
}

// IsPlainName reports whether a name can be one element of a path.
func IsPlainName(name string) bool {
	return name != "" && len(name) <= 255 && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// The directories of volumes, and of the links to block devices, below that of a pod.
const (
	volumesDir = "volumes"
	devicesDir = "volumeDevices"
)

// VolumeDir returns where a volume is below the directory of its pod. Plugins have names with a slash.
func VolumeDir(plugin, spec string, block bool) string {
	dir := volumesDir
	if block {
		dir = devicesDir
	}
	return filepath.Join(dir, strings.ReplaceAll(plugin, "/", "~"), spec)
}

// Read reads the record in the directory of a pod. One that does not exist is an error that wraps [fs.ErrNotExist].
func Read(dir string) (r Pod, err error) {
	path := filepath.Join(dir, recordName)
	data, err := plainfile.Read(path, maxRead)
	if err != nil {
		return r, err
	}
	if r, err = parse(data, filepath.Base(dir)); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// parse reads a record. Of the volumes in one without an error each has a place of its own in the directory of the pod.
func parse(data []byte, uid string) (r Pod, err error) {
	if len(data) > maxRead {
		return r, fmt.Errorf("more than %d bytes", maxRead)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("not a record: %w", err)
	}
	switch {
	case d.More():
		return r, errors.New("something follows the record")
	case r.Version != recordVersion:
		return r, fmt.Errorf("version %d is not %d", r.Version, recordVersion)
	case r.UID != uid:
		return r, fmt.Errorf("it is of pod %.256q, the directory is of %.256q", r.UID, uid)
	}
	seen, dirs := map[string]bool{}, map[string]bool{}
	for i := range r.Volumes {
		v := &r.Volumes[i]
		if err := v.validate(); err != nil {
			return r, err
		}
		for _, name := range append([]string{v.Name}, v.Also...) {
			if seen[name] {
				return r, fmt.Errorf("volume %q is there twice", name)
			}
			seen[name] = true
		}
		if dirs[v.Dir] {
			return r, fmt.Errorf("volume %q: directory %q is there twice", v.Name, v.Dir)
		}
		dirs[v.Dir] = true
	}
	return r, nil
}

// validate returns an error for a volume that is not where its plugin has it.
func (v *Volume) validate() error {
	for _, name := range append([]string{v.Name}, v.Also...) {
		if !IsPlainName(name) || v.Plugin == "" {
			return fmt.Errorf("volume %.256q of plugin %.256q has no valid name", name, v.Plugin)
		}
	}
	if v.Dir != VolumeDir(v.Plugin, v.Spec(), v.Block) || !IsPlainName(v.Spec()) || !IsPlainName(filepath.Base(filepath.Dir(v.Dir))) {
		return fmt.Errorf("volume %q: directory %.256q is not where its plugin has it", v.Name, v.Dir)
	}
	if err := v.validateKept(); err != nil {
		return err
	}
	if len(v.SELinuxLabel) > MaxLabel {
		return fmt.Errorf("volume %q: its SELinux label has more than %d bytes", v.Name, MaxLabel)
	}
	if v.Block && (v.Device == nil || v.Device.MapDir == "") {
		return fmt.Errorf("volume %q: nothing says where its block device is bound", v.Name)
	}
	if v.Device != nil {
		if err := v.Device.Validate(); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// validateKept returns an error for a claim that is not that of the volume.
func (v *Volume) validateKept() error {
	if (v.Claim == nil) != (v.PV == nil) || v.PV != nil && v.PV.Name != v.Spec() {
		return fmt.Errorf("volume %q: what is kept of its claim is not that of %q", v.Name, v.Spec())
	}
	return nil
}

// Write writes the record into the directory of a pod. It refuses one that is too large, and keeps the one before.
func (r Pod) Write(dir string) error {
	r.Version = recordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("pod %.512s has %d volumes of %d bytes in all, the limit is %d", r.Name, len(r.Volumes), len(data), maxRecord)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(dir, recordName), data, 0o600)
}

// Remove removes the record of a pod whose volumes are torn down from the directory of the pod, after the empty directories of volumes.
func (r Pod) Remove(dir string) error {
	subpaths := filepath.Join(dir, SubPathDir)
	for _, v := range r.Volumes {
		_ = os.Remove(filepath.Join(subpaths, v.Spec()))
		_ = os.Remove(filepath.Join(dir, filepath.Dir(v.Dir)))
	}
	_ = os.Remove(subpaths)
	_ = os.Remove(filepath.Join(dir, volumesDir))
	_ = os.Remove(filepath.Join(dir, devicesDir))
	path := filepath.Join(dir, recordName)
	if err := atomicfile.Clean(path); err != nil {
		return err
	}
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	_ = os.Remove(dir) // which has files of others in it, as a rule
	return nil
}

// ReadAll reads the records of all pods below a root, and those that cannot be read by their UIDs.
func ReadAll(root string) (records []Pod, damaged map[string]error, err error) {
	damaged = map[string]error{}
	d, err := os.Open(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxUIDs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	for _, uid := range names {
		if !IsPlainName(uid) {
			continue
		}
		r, err := Read(filepath.Join(root, uid))
		switch {
		case err == nil:
			records = append(records, r)
		case errors.Is(err, fs.ErrNotExist):
			// An agent that died before it wrote one leaves a temporary file, or an empty directory.
			_ = atomicfile.Clean(filepath.Join(root, uid, recordName))
			_ = os.Remove(filepath.Join(root, uid))
		case isNotDir(err):
		default:
			damaged[uid] = err
		}
	}
	return records, damaged, nil
}

// isNotDir reports whether a path leads through something that is no directory.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// Names returns all names of a volume in its pod.
func (v *Volume) Names() []string { return append([]string{v.Name}, v.Also...) }
