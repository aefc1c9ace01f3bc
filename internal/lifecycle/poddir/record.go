// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Record is what is known of a pod and told neither by its spec nor by the runtime.
type Record struct {
	Version int `json:"version"`
	// Pod is the namespace and the name of the pod, with a slash between. Its UID is the name of the directory.
	Pod string `json:"pod,omitempty"`
	// Source is the one whose pod it is. Empty: it is not known.
	Source string `json:"source,omitempty"`
	// Status is the one published last. Nil: none was, or nobody wanted the pod any more.
	Status *corev1.PodStatus `json:"status,omitempty"`
	// PostStartPending are the containers, by ID, whose postStart hook is yet to run to its end.
	PostStartPending []string `json:"postStartPending,omitempty"`
	// Sizes are the resources that the runtime was told of containers, by ID, as resize.AnnotationResources has them.
	Sizes map[string]string `json:"sizes,omitempty"`
	// Allocated are the resources that the pod was granted. Nil: it is not admitted, or that is not known.
	Allocated *resize.Allocation `json:"allocated,omitempty"`
	// Sized is the key of the resources that the pod's cgroup is for. Empty: it is not known.
	Sized string `json:"sized,omitempty"`
	// AdmissionPending says that the pod was not admitted yet. A pod with a record that does not say so was.
	AdmissionPending bool `json:"admissionPending,omitempty"`
	// Rejection is why the pod was not admitted. Nil: it was, or was not asked about.
	Rejection *podstatus.Rejection `json:"rejection,omitempty"`
	// Eviction is why the pod is ended or held back although its source wants it. Nil: it is not.
	Eviction *podstatus.Eviction `json:"eviction,omitempty"`
	// Holds are those that the pod has been through, in a row.
	Holds Holds `json:"holds,omitzero"`
}

// Holds is how often a pod was evicted and held back, for the back-off of the next time.
type Holds struct {
	Count  int       `json:"count"`
	Until  time.Time `json:"until"`            // when it may be admitted anew, the last time
	Reason string    `json:"reason,omitempty"` // of the last of them
}

// Next returns what becomes of it when the pod is held back once more, for as long as a policy says; it begins
// anew when the pod was left alone for reset.
func (h Holds) Next(now time.Time, wait backoff.Policy, reset time.Duration) Holds {
	if h.Count > 0 && now.Sub(h.Until) > reset {
		h.Count = 0
	}
	return Holds{Count: h.Count + 1, Until: now.Add(wait.After(h.Count + 1)), Reason: h.Reason}
}

// recordVersion is the one version of records so far. Others are left out of account.
const recordVersion = 1

// The limits of a record, in bytes. A status of an API server has fewer than are written.
const (
	maxRecord = 4 << 20  // that are written
	maxRead   = 32 << 20 // that are read: earlier versions wrote more
)

// recordName is the name of the file in the directory of a pod.
const recordName = "record.json"

// Recorder keeps the record of a pod in a file, so that it outlives the agent. What cannot be written is kept in memory, and
// written when the pod is looked at again.
type Recorder struct {
	path string // empty: there is no file
	pod  string // as it is written

	mu      sync.Mutex // guards all below
	source  string     // whose pod it is
	now     Record
	written [sha256.Size]byte // of what is in the file; zero: not known
	unsaved bool              // the last write failed
	spent   bool              // a spare file was used
}

// NewRecorder returns the recorder of a pod, which is named as "namespace/name". It reads nothing: see [Recorder.Load].
func NewRecorder(d Dir, pod string) *Recorder { return &Recorder{path: d.record(), pod: pod} }

// KeepSource says which source the pod is of.
func (r *Recorder) KeepSource(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = source
}

// Load reads what an earlier agent knew. After an error, which says what is wrong with the file, nothing is known.
func (r *Recorder) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		return nil
	}
	if err := atomicfile.Clean(r.path); err != nil {
		return err
	}
	data, err := plainfile.Read(r.path, maxRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var read Record
	if err := json.Unmarshal(data, &read); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	if read.Version != recordVersion {
		return fmt.Errorf("%s: version %d is not %d", r.path, read.Version, recordVersion)
	}
	r.now, r.written = read, sha256.Sum256(data)
	return nil
}

// Get returns what is known. It must not be written to.
func (r *Recorder) Get() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// Update changes what is known, and the file where that makes a difference. The change must not write to what it finds,
// but put something in its place. A terminal phase is on the disk when update returns; of the rest, a machine that loses
// power may lose the last seconds.
func (r *Recorder) Update(change func(now *Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.now)
	if r.path == "" {
		return nil
	}
	err := r.save()
	r.unsaved = err != nil
	return err
}

// save writes what is known, if that is not in the file.
func (r *Recorder) save() error {
	r.now.Version, r.now.Pod, r.now.Source = recordVersion, r.pod, r.source
	data, err := r.now.encode()
	if err != nil || sha256.Sum256(data) == r.written {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o750); err != nil {
		return err
	}
	write := atomicfile.Replace
	if st := r.now.Status; st != nil && podstatus.IsTerminal(st.Phase) {
		write = atomicfile.WriteFile
	}
	root := filepath.Dir(filepath.Dir(r.path))
	err = write(r.path, data, 0o600)
	if err != nil && fullDisk(err) && r.now.mustLast() {
		if spare := writeInto(root, r.path, data); spare != nil {
			return errors.Join(err, spare)
		}
		r.spent = true
	} else if err != nil {
		return err
	} else if r.spent { // there is room again
		r.spent = fillSpare(root) != nil
	}
	r.written = sha256.Sum256(data)
	return nil
}

// mustLast reports whether a pod ends, or is over: an agent that did not know that would run it again.
func (r *Record) mustLast() bool {
	return r.Eviction != nil || r.Status != nil && podstatus.IsTerminal(r.Status.Phase)
}

// fullDisk reports whether a disk, or the quota of a user, has no room.
func fullDisk(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Saved reports whether all that is known is in the file, if there is one.
func (r *Recorder) Saved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unsaved
}

// Recorded returns the UIDs of the pods below a root that an agent has made a directory for: those with a record.
func Recorded(root string) (uids []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !PlainName(e.Name()) {
			continue
		}
		if info, err := os.Lstat(filepath.Join(root, e.Name(), recordName)); err == nil && info.Mode().IsRegular() {
			uids = append(uids, e.Name())
		}
	}
	return uids, nil
}
