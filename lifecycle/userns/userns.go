// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// Length is the number of IDs in the user namespace of a pod: inside it they are 0 to 65535.
const Length = 1 << 16

// Options limits the host IDs that are assigned to pods. The zero value is for a host on which no other program uses IDs from
// 65536.
type Options struct {
	// First is the lowest host ID to assign, a multiple of Length. Lower IDs belong to the host. Zero means Length.
	First uint32
	// Count is the number of ranges, and so the maximum number of pods with a user namespace. Zero means all ranges below 2³².
	Count int
}

// Ranges assigns each pod a range of host IDs for its user namespace. [New] creates it. Its methods may be called from several
// goroutines. Only one Ranges may use a directory at a time.
type Ranges struct {
	root  string
	first uint32
	count int

	mu sync.Mutex // held while a range is chosen and written
}

// New returns a Ranges that stores the ID range of each pod in the pod's directory below root. It returns an error if an
// argument is invalid. It accesses no files.
func New(root string, opts Options) (*Ranges, error) {
	if opts.First == 0 {
		opts.First = Length
	}
	most := int((1<<32 - uint64(opts.First)) / Length)
	if opts.Count == 0 {
		opts.Count = most
	}
	switch {
	case root == "":
		return nil, errors.New("userns: root is empty")
	case opts.First%Length != 0:
		return nil, fmt.Errorf("userns: field First: %d is not a multiple of %d", opts.First, Length)
	case opts.Count < 0 || opts.Count > most:
		return nil, fmt.Errorf("userns: field Count: %d is not from 1 to %d, which is what fits", opts.Count, most)
	}
	return &Ranges{root: root, first: opts.First, count: opts.Count}, nil
}

// Assign returns the ID mapping for the user namespace of the pod. At the first call for a pod, it stores a mapping to a free
// range of host IDs. If the file of any pod cannot be read, the error names the file: the range in it could be assigned twice.
func (r *Ranges) Assign(pod *corev1.Pod) (cri.IDMapping, error) {
	m, err := r.assignRange(string(pod.UID))
	if err != nil {
		return cri.IDMapping{}, fmt.Errorf("user namespace of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return m, nil
}

// assignRange returns the range stored for the pod with this UID. If there is none, it stores and returns a free range.
func (r *Ranges) assignRange(uid string) (cri.IDMapping, error) {
	if uid == "" || strings.ContainsAny(uid, "/\x00") || uid[0] == '.' {
		return cri.IDMapping{}, fmt.Errorf("UID %q is not a valid file name", uid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	path := r.rangeFile(uid)
	m, err := readRange(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	taken, err := r.readTaken()
	if err != nil {
		return cri.IDMapping{}, err
	}
	for i := range r.count {
		host := r.first + uint32(i)*Length
		if taken[host] {
			continue
		}
		m := cri.IDMapping{HostID: host, Length: Length}
		return m, writeRange(path, m)
	}
	return cri.IDMapping{}, fmt.Errorf("all %d ranges are taken", r.count)
}

// rangeFile returns the path of the file that stores the range of the pod with this UID.
func (r *Ranges) rangeFile(uid string) string { return filepath.Join(r.root, uid, "userns") }

// readTaken returns the first host user ID of each range that belongs to a pod.
func (r *Ranges) readTaken() (map[uint32]bool, error) {
	entries, err := os.ReadDir(r.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	taken := map[uint32]bool{}
	for _, e := range entries {
		m, err := readRange(r.rangeFile(e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || !e.IsDir():
			continue
		case err != nil:
			return nil, err
		}
		taken[m.HostID] = true
	}
	return taken, nil
}

// rangesFile is the JSON content of the file "userns", as in the kubelet.
type rangesFile struct {
	UIDs []idMapping `json:"uidMappings"`
	GIDs []idMapping `json:"gidMappings"`
}

// idMapping is an ID mapping of a user namespace.
type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// writeRange writes the ID mapping to a file. It creates the directory of the file if necessary.
func writeRange(path string, mapping cri.IDMapping) error {
	one := []idMapping{{HostID: mapping.HostID, Length: mapping.Length}}
	data, err := json.Marshal(rangesFile{UIDs: one, GIDs: one})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, data, 0o600)
}

// readRange reads the ID range of a pod from a file. It returns an error if the range does not have the form of the ranges
// that this package assigns.
func readRange(path string) (cri.IDMapping, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return cri.IDMapping{}, err
	}
	var f rangesFile
	if err := json.Unmarshal(data, &f); err != nil {
		return cri.IDMapping{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(f.UIDs) != 1 || len(f.GIDs) != 1 || f.UIDs[0] != f.GIDs[0] {
		return cri.IDMapping{}, fmt.Errorf("read %s: want one range, the same for users and groups: %s", path, data)
	}
	m := f.UIDs[0]
	if m.ContainerID != 0 || m.Length != Length || m.HostID < Length || m.HostID%Length != 0 {
		return cri.IDMapping{}, fmt.Errorf("read %s: %d IDs from %d on the host to %d: not a range of this package",
			path, m.Length, m.HostID, m.ContainerID)
	}
	return cri.IDMapping{HostID: m.HostID, Length: m.Length}, nil
}
