// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// Keys of vol_data.json, the file that names the driver and the handle of a volume. They are the keys of the kubelet.
const (
	keySpec       = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyMode       = "volumeLifecycleMode"
	keyLabel      = "seLinuxMountContext" // set only if the volume is mounted with a label
)

// maxData is the maximum size of vol_data.json in bytes.
const maxData = 64 << 10

// owner identifies a volume by the name of its driver and its volume handle.
type owner struct{ driver, handle string }

func (o owner) isValid() bool { return o.handle != "" && checkDriver(o.driver) == nil }

// saveData writes data to the file vol_data.json in a directory, which must exist.
func saveData(dir string, data map[string]string) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(dir, dataFile), append(text, '\n'), 0o644)
}

// loadData returns the driver and the volume handle from the file vol_data.json in a directory. If the file does not exist,
// the error wraps fs.ErrNotExist.
func loadData(dir string) (owner, error) {
	d, err := loadVolumeData(dir)
	return d.owner, err
}

// volumeData has the fields of vol_data.json that identify a volume without its pod.
type volumeData struct {
	owner
	mode storagev1.VolumeLifecycleMode // empty in the file of a staging directory
}

// loadVolumeData reads the file vol_data.json in a directory. If the file does not exist, the error wraps fs.ErrNotExist.
func loadVolumeData(dir string) (volumeData, error) {
	path := filepath.Join(dir, dataFile)
	text, err := plainfile.Read(path, maxData)
	if err != nil {
		return volumeData{}, err
	}
	d, err := parseData(text)
	if err != nil {
		return volumeData{}, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// parseData returns the fields of the contents of vol_data.json.
func parseData(text []byte) (volumeData, error) {
	data := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&data); err != nil {
		return volumeData{}, fmt.Errorf("not the data of a volume: %w", err)
	}
	o := owner{data[keyDriver], data[keyHandle]}
	if !o.isValid() {
		return volumeData{}, fmt.Errorf("not the data of a volume: %s %.80q, %s %.80q", keyDriver, o.driver, keyHandle, o.handle)
	}
	return volumeData{o, storagev1.VolumeLifecycleMode(data[keyMode])}, nil
}

// removeMountDir removes a former mount point and its parent with vol_data.json, or returns true if it is still mounted.
func removeMountDir(path string) (mounted bool, err error) {
	mounted, err = mount.IsMountPoint(path)
	if errors.Is(err, fs.ErrNotExist) {
		mounted, err = false, nil
	}
	if mounted || err != nil {
		return mounted, err
	}
	if err := removePath(path); err != nil { // the driver should have removed it; files in it are not deleted
		return false, err
	}
	return false, rmtree.Remove(filepath.Dir(path))
}

// removePath removes the file or empty directory at path. It returns nil if nothing exists there.
func removePath(path string) error {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return nil
}
