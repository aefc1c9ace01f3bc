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

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// The keys of vol_data.json, the file that says which driver a volume is of. The kubelet writes and reads the same.
const (
	keySpec       = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyMode       = "volumeLifecycleMode"
	keyLabel      = "seLinuxMountContext" // only where it is mounted with one
)

// maxData is how large the file may be.
const maxData = 64 << 10

// owner is who has to be asked about a volume.
type owner struct{ driver, handle string }

func (o owner) valid() bool { return o.handle != "" && checkDriver(o.driver) == nil }

// saveData writes the file into a directory, which exists.
func saveData(dir string, data map[string]string) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return atomicfile.Replace(filepath.Join(dir, dataFile), append(text, '\n'), 0o644)
}

// loadData reads the file in a directory. One that does not exist is an error that wraps fs.ErrNotExist.
func loadData(dir string) (owner, error) {
	path := filepath.Join(dir, dataFile)
	text, err := plainfile.Read(path, maxData)
	if err != nil {
		return owner{}, err
	}
	o, err := parseData(text)
	if err != nil {
		return owner{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// parseData reads the contents of the file.
func parseData(text []byte) (owner, error) {
	data := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&data); err != nil {
		return owner{}, fmt.Errorf("not the data of a volume: %w", err)
	}
	o := owner{data[keyDriver], data[keyHandle]}
	if !o.valid() {
		return owner{}, fmt.Errorf("not the data of a volume: %s %.80q, %s %.80q", keyDriver, o.driver, keyHandle, o.handle)
	}
	return o, nil
}

// removeMountDir removes what a volume is mounted on, its data and the directory that both are in. While something is mounted there
// it leaves all of it, and reports that.
func removeMountDir(at string) (mounted bool, err error) {
	mounted, err = mount.IsMountPoint(at)
	if errors.Is(err, fs.ErrNotExist) {
		mounted, err = false, nil
	}
	if mounted || err != nil {
		return mounted, err
	}
	if err := remove(at); err != nil { // a driver should have done that; what it has left in it is not ours
		return false, err
	}
	return false, rmtree.Remove(filepath.Dir(at))
}

// remove removes a file or an empty directory, if it exists.
func remove(path string) error {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return nil
}
