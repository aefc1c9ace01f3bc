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

// SubPathDir is the directory of subPath mounts, below the directory of a pod.
const SubPathDir = "volume-subpaths"

// Limits of records.
const (
	maxRecord = 4 << 20  // maximum bytes that Write accepts
	maxRead   = 32 << 20 // maximum bytes that Read accepts: older versions wrote more than maxRecord
	maxUIDs   = 100_000  // maximum number of pod directories that ReadAll scans
	MaxLabel  = 4 << 10  // maximum bytes of an SELinux label
)

const (
	recordName    = "volumes.json"
	recordVersion = 1
)

// Pod is the record of the volumes of one pod. It is the file volumes.json in the directory of the pod.
type Pod struct {
	Version int      `json:"version"`
	UID     string   `json:"uid"`
	Name    string   `json:"pod"` // namespace/name
	Volumes []Volume `json:"volumes"`
}

// Volume is the record of one volume. It is written before the set-up of the volume.
type Volume struct {
	Name    string   `json:"name"`
	Aliases []string `json:"also,omitempty"` // other names of the volume, if the pod has several names for one claim
	Plugin  string   `json:"plugin"`
	Dir     string   `json:"dir"` // relative to the directory of the pod
	Block   bool     `json:"block,omitempty"`
	Device  *Device  `json:"device,omitempty"`
	// SELinuxLabel is the label with which the volume is mounted. It stays if the CSIDriver object changes. Empty: no label.
	SELinuxLabel string `json:"seLinuxLabel,omitempty"`
	// Claim and PV are copies of the claim and its PV at the first set-up, made by claim.TrimForRecord.
	Claim *corev1.PersistentVolumeClaim `json:"claim,omitempty"`
	PV    *corev1.PersistentVolume      `json:"persistentVolume,omitempty"`
}

// Device is the recorded part of a volume.Device: a device that volumes of several pods share.
type Device struct {
	Name       string            `json:"name"`
	Dir        string            `json:"dir,omitempty"`
	MapDir     string            `json:"mapDir,omitempty"`
	Data       map[string]string `json:"data,omitempty"`
	Attachable bool              `json:"attachable,omitempty"`
}

// SpecName returns the name of the volume on disk. This is the name of its PV or, without a claim, its name in the pod spec.
func (v *Volume) SpecName() string { return filepath.Base(v.Dir) }

// CheckUnchanged returns an error if the plugin, directory or device of the volume has changed since v was recorded. current
// is computed from the present pod spec.
func (v *Volume) CheckUnchanged(current Volume) error {
	switch {
	case current.Plugin != v.Plugin || current.Dir != v.Dir:
		return fmt.Errorf("volume has changed: directory is %s, and was %s at set-up", current.Dir, v.Dir)
	case (current.Device == nil) != (v.Device == nil) || current.Device != nil && current.Device.Name != v.Device.Name:
		return errors.New("device has changed since it was staged")
	}
	return nil
}

// IsPlainName reports whether name is safe as a file name: it has 1 to 255 bytes, no slash, no zero byte and no leading dot.
func IsPlainName(name string) bool {
	return name != "" && len(name) <= 255 && name[0] != '.' && !strings.ContainsAny(name, "/\x00")
}

// Directories of volumes and of links to block devices, below the directory of a pod.
const (
	volumesDir = "volumes"
	devicesDir = "volumeDevices"
)

// VolumeDir returns the directory of a volume, relative to the directory of its pod. spec is the name of the volume on disk.
// block is true for a block volume. Slashes in the plugin name become tildes.
func VolumeDir(plugin, spec string, block bool) string {
	dir := volumesDir
	if block {
		dir = devicesDir
	}
	return filepath.Join(dir, strings.ReplaceAll(plugin, "/", "~"), spec)
}

// Read returns the record in dir, the directory of a pod. The error wraps [fs.ErrNotExist] if the pod has no record.
func Read(dir string) (pod Pod, err error) {
	path := filepath.Join(dir, recordName)
	data, err := plainfile.Read(path, maxRead)
	if err != nil {
		return pod, err
	}
	if pod, err = parseRecord(data, filepath.Base(dir)); err != nil {
		return pod, fmt.Errorf("%s: %w", path, err)
	}
	return pod, nil
}

// parseRecord decodes and validates the record of the pod with this UID. It returns an error if two volumes have the same
// name or directory.
func parseRecord(data []byte, uid string) (r Pod, err error) {
	if len(data) > maxRead {
		return r, fmt.Errorf("more than %d bytes", maxRead)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("not a record: %w", err)
	}
	switch {
	case d.More():
		return r, errors.New("data after the end of the record")
	case r.Version != recordVersion:
		return r, fmt.Errorf("version %d is not %d", r.Version, recordVersion)
	case r.UID != uid:
		return r, fmt.Errorf("record of pod %.256q in the directory of pod %.256q", r.UID, uid)
	}
	seen, dirs := map[string]bool{}, map[string]bool{}
	for i := range r.Volumes {
		v := &r.Volumes[i]
		if err := v.validate(); err != nil {
			return r, err
		}
		for _, name := range append([]string{v.Name}, v.Aliases...) {
			if seen[name] {
				return r, fmt.Errorf("volume %q appears twice", name)
			}
			seen[name] = true
		}
		if dirs[v.Dir] {
			return r, fmt.Errorf("volume %q: directory %q appears twice", v.Name, v.Dir)
		}
		dirs[v.Dir] = true
	}
	return r, nil
}

// validate returns an error if a field of v, such as a name or directory, is invalid or too long.
func (v *Volume) validate() error {
	for _, name := range append([]string{v.Name}, v.Aliases...) {
		if !IsPlainName(name) || v.Plugin == "" {
			return fmt.Errorf("volume %.256q of plugin %.256q has no valid name", name, v.Plugin)
		}
	}
	if v.Dir != VolumeDir(v.Plugin, v.SpecName(), v.Block) || !IsPlainName(v.SpecName()) || !IsPlainName(filepath.Base(filepath.Dir(v.Dir))) {
		return fmt.Errorf("volume %q: directory %.256q is not where its plugin has it", v.Name, v.Dir)
	}
	if err := v.validateClaim(); err != nil {
		return err
	}
	if len(v.SELinuxLabel) > MaxLabel {
		return fmt.Errorf("volume %q: its SELinux label has more than %d bytes", v.Name, MaxLabel)
	}
	if v.Block && (v.Device == nil || v.Device.MapDir == "") {
		return fmt.Errorf("volume %q: block volume without mapDir", v.Name)
	}
	if v.Device != nil {
		if err := v.Device.Validate(); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// validateClaim returns an error unless claim and PV are both recorded, with the PV's name as on disk, or both missing.
func (v *Volume) validateClaim() error {
	if (v.Claim == nil) != (v.PV == nil) || v.PV != nil && v.PV.Name != v.SpecName() {
		return fmt.Errorf("volume %q: recorded claim is not that of %q", v.Name, v.SpecName())
	}
	return nil
}

// Write stores the record in dir, the directory of the pod, which is created if necessary. If the record is too large, Write
// returns an error and the old record stays.
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

// Remove deletes the record from dir, the directory of the pod. It also deletes the empty directories of the volumes and, if
// it is then empty, dir itself. The volumes must be torn down.
func (r Pod) Remove(dir string) error {
	subpaths := filepath.Join(dir, SubPathDir)
	for _, v := range r.Volumes {
		_ = os.Remove(filepath.Join(subpaths, v.SpecName()))
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
	_ = os.Remove(dir) // fails if other files are in it, which is normal
	return nil
}

// ReadAll returns the records of all pods that have a directory in root. damaged has the errors of unreadable records by pod
// UID, and err is the error of reading root. ReadAll removes the files of an interrupted first Write.
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
			// An agent that was killed before the first Write leaves a temporary file or an empty directory.
			_ = atomicfile.Clean(filepath.Join(root, uid, recordName))
			_ = os.Remove(filepath.Join(root, uid))
		case isNotDir(err):
		default:
			damaged[uid] = err
		}
	}
	return records, damaged, nil
}

// isNotDir reports whether err means that a path element is not a directory.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// Names returns all names of the volume in its pod: Name, followed by Aliases.
func (v *Volume) Names() []string { return append([]string{v.Name}, v.Aliases...) }
